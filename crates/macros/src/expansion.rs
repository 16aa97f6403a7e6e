use std::time::Duration;

use celeriac_core::Delivery;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Ident, Result, ReturnType, Type, parse_quote};

use crate::attributes::Attributes;
use crate::function::{Function, Parameter, Run, Taken};
use crate::type_text::type_text;

/// What stands beside the function.
///
/// A type, not a module, carries `call`: paths in the parameters' types (`super::Size`, a type inside a function's
/// body) mean the same there as in the function, whereas inside a module they would not. Everything else is in
/// an unnamed constant, where it cannot be named and cannot collide.
pub(crate) fn expand(attributes: &Attributes, function: &Function) -> Result<TokenStream> {
    let task_name = match &attributes.name {
        Some(name) => name.clone(),
        None => function.default_task_name()?,
    };
    let facade = attributes.facade.clone().unwrap_or_else(|| parse_quote!(::celeriac));
    let private = quote!(#facade::__private);
    let serde = quote!(#private::serde).to_string();

    let Function { name, visibility, docs, conditions, deprecated, .. } = function;
    let spec = spec(&task_name, attributes, &private);
    let run = run(function, &private);
    let payload = Payload::of(function, &private);
    let Payload { types, field_types, names, taken, built, described } = &payload;
    let checks = types.iter().map(|ty| quote_spanned!(at(ty.span())=> #private::argument::<#ty>();));
    let output_check = match &function.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(quote_spanned!(at(ty.span())=> #private::handler_output::<#ty>();)),
    };
    let states = function.parameters.iter().filter_map(|parameter| match parameter {
        Parameter::State(ty) => Some(quote_spanned!(at(ty.span())=> #private::StateKey::of::<#ty>())),
        _ => None,
    });
    let taken_transaction = function.parameters.iter().find_map(|parameter| match parameter {
        Parameter::Transaction(ty) => Some(ty),
        _ => None,
    });
    if let Some(ty) = taken_transaction
        && matches!(attributes.delivery, Delivery::AtMostOnce)
    {
        return Err(Error::new_spanned(
            ty,
            "delivery = \"at_most_once\" and a transaction exclude one another: one acknowledges the job before it runs, \
             the other with what it wrote; leave the delivery out",
        ));
    }
    let transaction_check =
        taken_transaction.map(|ty| quote_spanned!(at(ty.span())=> #private::transaction::<#ty>();));
    let in_transaction = taken_transaction
        .map(|ty| quote_spanned!(at(ty.span())=> .in_transaction(|| #private::StateKey::of::<#ty>())));
    let file = quote_spanned!(name.span()=> ::core::file!());
    let line = quote_spanned!(name.span()=> ::core::line!());
    let summary = format!(
        "The task `{task_name}`: `{0}::call(…)` makes a call of the function [`{0}`](fn@{0}) that can be enqueued.",
        name.unraw()
    );

    Ok(quote! {
        #(#conditions)*
        #(#deprecated)*
        #[doc = #summary]
        #[allow(
            dead_code,
            missing_debug_implementations,
            non_camel_case_types,
            unnameable_types,
            unreachable_pub,
            clippy::exhaustive_structs
        )]
        #visibility struct #name {
            __celeriac_never: ::core::convert::Infallible,
        }

        #(#conditions)*
        #[allow(
            dead_code,
            deprecated,
            non_local_definitions,
            non_snake_case,
            private_bounds,
            private_interfaces,
            unreachable_pub,
            unused_qualifications,
            unused_variables,
            clippy::all,
            clippy::nursery,
            clippy::pedantic,
            clippy::restriction
        )]
        const _: () = {
            const fn __celeriac_checks() {
                #(#checks)*
                #output_check
                #transaction_check
            }

            #(#private::field! { #field_types, #types })*

            #[derive(#private::serde::Serialize, #private::serde::Deserialize)]
            #[serde(crate = #serde)]
            struct __CeleriacArguments {
                #(#names: #field_types,)*
            }

            impl #name {
                /// The stable name of the task.
                pub const NAME: &'static str = #task_name;

                #(#docs)*
                ///
                /// This makes a call that can be enqueued; nothing happens before that.
                pub fn call(#(#taken),*) -> #private::Call {
                    #private::Call::new(__celeriac_spec(), &__CeleriacArguments { #(#names: #field_types(#built),)* })
                }

                /// What a worker must know to run the task.
                pub const fn definition() -> #private::TaskDefinition {
                    #private::TaskDefinition::new(
                        Self::NAME,
                        __celeriac_spec,
                        __celeriac_run,
                        __celeriac_check,
                        &[#(#described),*],
                        __celeriac_states,
                        #file,
                        #line,
                    )
                    #in_transaction
                }
            }

            #spec
            #run

            fn __celeriac_check(
                __celeriac_payload: &#private::Payload,
            ) -> ::core::result::Result<(), #private::DecodeError> {
                __celeriac_payload.decode::<__CeleriacArguments>().map(|_| ())
            }

            fn __celeriac_states() -> ::std::vec::Vec<#private::StateKey> {
                ::std::vec![#(#states),*]
            }

            #private::inventory::submit! { #name::definition() }
        };
    })
}

/// The parameters that make up the payload, and what is made of each.
#[derive(Default)]
struct Payload<'a> {
    names: Vec<&'a Ident>,
    types: Vec<&'a Type>,
    /// The newtype of its field.
    field_types: Vec<Ident>,
    /// As a parameter of `call`.
    taken: Vec<TokenStream>,
    /// Its value in `call`.
    built: Vec<TokenStream>,
    /// For listings.
    described: Vec<TokenStream>,
}

impl<'a> Payload<'a> {
    fn of(function: &'a Function, private: &TokenStream) -> Self {
        let mut payload = Self::default();
        for parameter in &function.parameters {
            let Parameter::Argument { name, ty, taken } = parameter else { continue };
            let (taken, built) = match taken {
                Taken::AsIs => (quote!(#name: #ty), quote!(#name)),
                Taken::Into => (
                    quote!(#name: impl ::core::convert::Into<#ty>),
                    quote!(::core::convert::Into::into(#name)),
                ),
            };
            let (label, text) = (name.unraw().to_string(), type_text(ty));
            payload.field_types.push(format_ident!("__CeleriacField{}", payload.names.len()));
            payload.names.push(name);
            payload.types.push(ty);
            payload.taken.push(taken);
            payload.built.push(built);
            payload.described.push(quote!(#private::Parameter { name: #label, ty: #text }));
        }
        payload
    }
}

/// The specification is built once from the checked literals, and cloned for each call.
fn spec(task_name: &str, attributes: &Attributes, private: &TokenStream) -> TokenStream {
    let queue = option(attributes.queue.as_ref().map(ToTokens::to_token_stream));
    let priority = attributes.priority;
    let timeout = option(attributes.timeout.map(duration));
    let retry = option(attributes.retry.as_ref().map(ToTokens::to_token_stream));
    let max_attempts = option(attributes.max_attempts.map(ToTokens::into_token_stream));
    let ttl = option(attributes.ttl.map(duration));
    let delivery = match attributes.delivery {
        Delivery::AtMostOnce => quote!(AtMostOnce),
        _ => quote!(AtLeastOnce),
    };
    quote! {
        fn __celeriac_spec() -> #private::TaskSpec {
            static SPEC: ::std::sync::LazyLock<#private::TaskSpec> = ::std::sync::LazyLock::new(|| {
                #private::spec(#private::SpecLiterals {
                    name: #task_name,
                    queue: #queue,
                    priority: #priority,
                    timeout: #timeout,
                    retry: #retry,
                    max_attempts: #max_attempts,
                    ttl: #ttl,
                    delivery: #private::Delivery::#delivery,
                })
            });
            #private::TaskSpec::clone(&SPEC)
        }
    }
}

/// Decodes, takes the states, calls the function, and turns its output into a verdict.
fn run(function: &Function, private: &TokenStream) -> TokenStream {
    let name = &function.name;
    let handed_in = function.parameters.iter().map(|parameter| match parameter {
        Parameter::Argument { name, .. } => quote!(__celeriac_arguments.#name.0),
        Parameter::Context => quote!(::core::clone::Clone::clone(&__celeriac_context)),
        Parameter::State(ty) => quote!(__celeriac_states.hand_in::<#ty>()?),
        Parameter::Transaction(ty) => quote!(#private::hand_in::<#ty>(&mut __celeriac_transaction)?),
    });
    // Errors about the future are to point at the function, not at the attribute.
    let place = at(name.span());
    let call = match function.run {
        Run::Async => quote_spanned!(place=> #name(#(#handed_in),*).await),
        Run::Blocking => quote_spanned!(place=> #name(#(#handed_in),*)),
    };
    let body = quote! {
        let __celeriac_output = #private::Output::new(#call);
        (&&&&__celeriac_output).settled()
    };
    let future = match function.run {
        Run::Async => quote_spanned!(place=> #private::asynchronous(async move { #body })),
        Run::Blocking => quote_spanned!(place=> #private::blocking(move || { #body })),
    };
    quote! {
        fn __celeriac_run(
            __celeriac_invocation: #private::Invocation,
        ) -> ::core::result::Result<#private::TaskFuture, #private::DecodeError> {
            #[allow(unused_imports)]
            use #private::{ViaDisplay as _, ViaError as _, ViaName as _, ViaNothing as _};
            let __celeriac_arguments: __CeleriacArguments = __celeriac_invocation.payload.decode()?;
            let __celeriac_context = __celeriac_invocation.context;
            let __celeriac_states = __celeriac_invocation.states;
            #[allow(unused_mut)]
            let mut __celeriac_transaction = __celeriac_invocation.transaction;
            ::core::result::Result::Ok(#future)
        }
    }
}

/// Where a compiler's error is to point, without the hygiene of that place: in the output of a `macro_rules!`
/// our own variables would not be found otherwise.
fn at(span: Span) -> Span {
    Span::call_site().located_at(span)
}

fn option(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

fn duration(duration: Duration) -> TokenStream {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanoseconds))
}
