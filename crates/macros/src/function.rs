use celeriac_core::TaskName;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ItemFn, Pat, PatType, PathArguments, PathSegment,
    Result, ReturnType, Safety, Type, Visibility,
};

use crate::attributes::collect;
use crate::type_text::type_text;

/// A function that can be a task.
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    /// Documentation, for what is generated as well.
    pub(crate) docs: Vec<Attribute>,
    /// Conditions under which the function exists at all.
    pub(crate) conditions: Vec<Attribute>,
    /// Whether using it warns.
    pub(crate) deprecated: Vec<Attribute>,
    pub(crate) run: Run,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) output: ReturnType,
}

/// Where the function runs.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    Async,
    Blocking,
}

/// A parameter, in the order of the function.
pub(crate) enum Parameter {
    /// Part of the payload.
    Argument { name: Ident, ty: Type, taken: Taken },
    /// `Context`.
    Context,
    /// `State<T>`, with its `T`.
    State(Type),
    /// The worker's transaction, with its type as it was written.
    Transaction(Type),
}

/// How `call` takes an argument.
#[derive(Clone, Copy)]
pub(crate) enum Taken {
    AsIs,
    /// As anything that converts into the type.
    Into,
}

impl Function {
    /// Checks that the function can be a task, and reports everything that is in the way.
    pub(crate) fn parse(function: &ItemFn) -> Result<Self> {
        let signature = &function.sig;
        let mut mistakes = None;
        if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
            let place: TokenStream = if signature.generics.params.is_empty() {
                signature.generics.where_clause.to_token_stream()
            } else {
                signature.generics.to_token_stream()
            };
            collect(
                &mut mistakes,
                Error::new_spanned(
                    place,
                    "a task cannot be generic: a worker finds it by its name alone; write one task for each type \
                     and call the generic function from it",
                ),
            );
        }
        if let Safety::Unsafe(word) = &signature.safety {
            collect(&mut mistakes, Error::new(word.span, "a task cannot be unsafe: the worker calls it"));
        }
        if let Some(abi) = &signature.abi {
            collect(&mut mistakes, Error::new_spanned(abi, "a task must be a plain Rust function"));
        }
        if let Some(variadic) = &signature.variadic {
            collect(&mut mistakes, Error::new_spanned(variadic, "a task cannot be variadic"));
        }
        let mut parameters = Vec::new();
        for input in &signature.inputs {
            match Parameter::parse(input) {
                Ok(parameter) => parameters.push(parameter),
                Err(error) => collect(&mut mistakes, error),
            }
        }
        let transactions = parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Transaction(ty) => Some(ty),
            _ => None,
        });
        for second in transactions.skip(1) {
            collect(
                &mut mistakes,
                Error::new_spanned(
                    second,
                    "a task has one transaction: the one that its verdict is written in",
                ),
            );
        }
        if let ReturnType::Type(_, ty) = &signature.output
            && let Some(place) = unnamed(ty.to_token_stream())
        {
            collect(
                &mut mistakes,
                Error::new(
                    place.span(),
                    "a task's result needs a type with a name: nothing, or a Result<…, …>",
                ),
            );
        }
        if let Some(error) = mistakes {
            return Err(error);
        }
        let select = |name: &str| {
            function.attrs.iter().filter(|one| one.path().is_ident(name)).cloned().collect::<Vec<_>>()
        };
        Ok(Self {
            name: signature.ident.clone(),
            visibility: function.vis.clone(),
            docs: select("doc"),
            conditions: select("cfg"),
            deprecated: select("deprecated"),
            run: if signature.asyncness.is_some() { Run::Async } else { Run::Blocking },
            parameters,
            output: signature.output.clone(),
        })
    }

    /// The stable name unless the attribute gives another.
    pub(crate) fn default_task_name(&self) -> Result<String> {
        let name = self.name.unraw().to_string();
        match TaskName::new(&name) {
            Ok(_) => Ok(name),
            Err(error) => Err(Error::new(
                self.name.span(),
                format!("{error}; give the task another name with #[task(name = \"…\")]"),
            )),
        }
    }
}

impl Parameter {
    fn parse(input: &FnArg) -> Result<Self> {
        let PatType { attrs, pat, ty, .. } = match input {
            FnArg::Receiver(receiver) => {
                return Err(Error::new_spanned(
                    receiver,
                    "a task cannot be a method: there is no `self` in another process; take what it needs as \
                     parameters, or as State<…>",
                ));
            }
            FnArg::Typed(typed) => typed,
        };
        const LINTS: [&str; 5] = ["allow", "deny", "expect", "forbid", "warn"];
        if let Some(other) = attrs.iter().find(|one| !LINTS.iter().any(|lint| one.path().is_ident(lint))) {
            return Err(Error::new_spanned(
                other,
                "only lint levels are allowed on a task's parameter: the payload has the same fields everywhere",
            ));
        }
        let ty = peeled(ty);
        let segment = last_segment(ty);
        if let Some(segment) = segment.filter(|segment| segment.ident == "Context")
            && segment.arguments.is_none()
        {
            return Ok(Self::Context);
        }
        if let Some(segment) = segment.filter(|segment| segment.ident == "State") {
            return match type_argument(segment) {
                Some(inner) => Ok(Self::State(inner.clone())),
                None => Err(Error::new_spanned(ty, "State needs the type that is handed in: State<MyPool>")),
            };
        }
        if let Some(segment) = segment.filter(|segment| segment.ident == "Transaction") {
            if !segment.arguments.is_none() {
                return Err(Error::new_spanned(
                    ty,
                    "the worker hands in a transaction that is owned: take celeriac::postgres::Transaction, which has \
                     no parameters of its own and is used like a tokio_postgres client",
                ));
            }
            return Ok(Self::Transaction(ty.clone()));
        }
        let name = match &**pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => ident.ident.clone(),
            other => {
                return Err(Error::new_spanned(
                    other,
                    "a task's parameter needs a plain name: it is the name of the field in the payload",
                ));
            }
        };
        check_owned(ty)?;
        let taken = if converts(ty) { Taken::Into } else { Taken::AsIs };
        Ok(Self::Argument { name, ty: ty.clone(), taken })
    }
}

/// Without the invisible brackets that a `macro_rules!` leaves, and without needless visible ones.
fn peeled(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            other => return other,
        };
    }
}

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

fn type_argument(segment: &PathSegment) -> Option<&Type> {
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(ty)) if arguments.args.len() == 1 => Some(ty),
            _ => None,
        },
        _ => None,
    }
}

/// Whether `call` takes anything that converts into this type. Only types without a parameter of their own that
/// the compiler would have to guess: `Vec<u8>` as `impl Into<…>` would make `collect()` ambiguous.
fn converts(ty: &Type) -> bool {
    let Some(segment) = last_segment(ty) else { return false };
    if segment.arguments.is_none() {
        return segment.ident == "String" || segment.ident == "PathBuf";
    }
    if segment.ident != "Box" && segment.ident != "Arc" {
        return false;
    }
    let inner = type_argument(segment).and_then(|inner| last_segment(peeled(inner)));
    inner.is_some_and(|inner| inner.arguments.is_none() && (inner.ident == "str" || inner.ident == "Path"))
}

/// A payload outlives the caller, so nothing in it can be borrowed, and its type must be known by name.
fn check_owned(ty: &Type) -> Result<()> {
    if let Type::ImplTrait(wanted) = ty {
        return Err(Error::new_spanned(
            wanted,
            "a task's parameter needs a concrete type: the worker must know what to decode",
        ));
    }
    if let Type::Reference(reference) = ty {
        let inner = peeled(&reference.elem);
        let owned = match (inner, last_segment(inner)) {
            (Type::Slice(slice), _) => format!("Vec<{}>", type_text(&slice.elem)),
            (_, Some(segment)) if segment.ident == "str" => "String".to_owned(),
            (_, Some(segment)) if segment.ident == "Path" => "PathBuf".to_owned(),
            _ => type_text(inner),
        };
        return Err(Error::new_spanned(
            reference,
            format!(
                "a task's parameter must be owned, since the job outlives its caller: write {owned}, or State<…> for \
                 what the worker hands in"
            ),
        ));
    }
    match borrowed(ty.to_token_stream()) {
        Some(place) => Err(Error::new(
            place.span(),
            "a task's parameter must be owned, since the job outlives its caller: no reference, lifetime or `impl` \
             within its type",
        )),
        None => Ok(()),
    }
}

/// The first `impl` in a type.
fn unnamed(tokens: TokenStream) -> Option<TokenTree> {
    tokens.into_iter().find_map(|token| match &token {
        TokenTree::Group(group) => unnamed(group.stream()),
        TokenTree::Ident(word) if word == "impl" => Some(token),
        _ => None,
    })
}

/// The first sign of a borrow or of an unnamed type. `'static` is none: it can stand in an owned type
/// (`Cow<'static, str>`).
fn borrowed(tokens: TokenStream) -> Option<TokenTree> {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Group(group) => {
                if let Some(found) = borrowed(group.stream()) {
                    return Some(found);
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == '&' => return Some(token),
            TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                let lifetime = tokens.next()?;
                if lifetime.to_string() != "static" {
                    return Some(lifetime);
                }
            }
            TokenTree::Ident(word) if word == "impl" => return Some(token),
            _ => {}
        }
    }
    None
}
