//! The attribute `#[task]`. Depend on `celeriac`, which re-exports it; the paths that it writes lead there.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod attributes;
mod expansion;
mod function;
mod type_text;

use proc_macro::TokenStream;

use crate::attributes::Attributes;
use crate::function::Function;

/// Makes a function a task: something that can be called later, in another process.
///
/// ```
/// use std::path::PathBuf;
///
/// use celeriac::prelude::*;
///
/// # struct Blobs;
/// # impl Blobs { async fn resize(&self, _: PathBuf, _: u32) -> std::io::Result<()> { Ok(()) } }
/// /// Thumbnails are cheap to redo: three quick tries, then the bin.
/// #[task(queue = "media", priority = 3, timeout = "30s", retry = "5s, 1m, 10m")]
/// async fn thumbnail(path: PathBuf, width: u32, store: State<Blobs>) -> std::io::Result<()> {
///     store.resize(path, width).await
/// }
///
/// # async fn caller(celeriac: Client) -> celeriac::Result<()> {
/// celeriac.enqueue(thumbnail::call("a.png", 200)).await?;
/// # Ok(())
/// # }
/// ```
///
/// The function stays as it is and can be called as before. Beside it, under the same name and with the same
/// visibility, stands an item with
///
/// * `call(path, width) -> Call`: the call as a value, checked by the compiler, to be enqueued;
/// * `NAME`: the stable name of the task;
/// * `definition() -> TaskDefinition`: for a registry made by hand.
///
/// # Parameters
/// They are the payload of the job, by name, and must be owned, `serde::Serialize` and
/// `serde::Deserialize`. An `Option<…>` may be missing in a payload, so adding one keeps stored jobs valid.
/// Strings, paths and their boxed forms are taken by `call` as anything that converts into them.
///
/// `State<T>`, `Context` and `Transaction`, recognised by these names, are handed in by the worker and are not in the
/// payload.
///
/// # Result
/// Nothing, or a `Result` whose error can be displayed. A `TaskError` may ask for more than a retry.
///
/// A function that is not `async` runs on a thread pool for blocking work.
///
/// # Attributes
/// All are literals, checked when the program is compiled.
///
/// | attribute | meaning | default |
/// | --- | --- | --- |
/// | `name = "reports/daily"` | the stable name, by which stored jobs find the task | the function's name |
/// | `queue = "media"` | where its jobs go | `default` |
/// | `priority = 3` | 0 to 9, higher first | 0 |
/// | `timeout = "30s"` | the longest run of one attempt | none |
/// | `retry = "5s, 1m"` | the delays between attempts, or `exponential(base=1s, factor=2, max=1h)` | `5s, 1m, 10m, 1h` |
/// | `max_attempts = 4` | how many times the handler may fail | one more than the delays; 10 for `exponential` |
/// | `ttl = "1h"` | how long a job may wait for its first start | none |
/// | `delivery = "at_most_once"` | acknowledged before it runs, never tried again | `at_least_once` |
/// | `crate = "my::celeriac"` | where the crate `celeriac` is found | `::celeriac` |
#[proc_macro_attribute]
pub fn task(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse::<syn::ItemFn>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            // What the parser says is of use only if this is a function at all.
            let error = if looks_like_function(item.clone()) {
                error
            } else {
                syn::Error::new(proc_macro2::Span::call_site(), "#[task] belongs on a function")
            };
            return joined(error.to_compile_error(), item);
        }
    };
    // Both are read in any case, so that all mistakes are reported at once.
    match (Attributes::parse(attributes.into()), Function::parse(&function)) {
        (Ok(attributes), Ok(parsed)) => match expansion::expand(&attributes, &parsed) {
            Ok(added) => {
                // A task must own its parameters, used up or not.
                let mut tokens = TokenStream::from(quote::quote!(#[allow(clippy::needless_pass_by_value)]));
                tokens.extend(joined(added, item));
                tokens
            }
            Err(error) => joined(error.to_compile_error(), item),
        },
        (Err(mut error), Err(other)) => {
            error.combine(other);
            joined(error.to_compile_error(), item)
        }
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => joined(error.to_compile_error(), item),
    }
}

/// The item stays as it was written, also beside an error: code that uses it gets no errors of its own.
fn joined(added: proc_macro2::TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens = item;
    tokens.extend(TokenStream::from(added));
    tokens
}

fn looks_like_function(item: TokenStream) -> bool {
    item.into_iter()
        .any(|token| matches!(token, proc_macro::TokenTree::Ident(word) if word.to_string() == "fn"))
}
