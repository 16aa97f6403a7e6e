use std::time::Duration;

use celeriac_core::{
    Delivery, Priority, QueueName, RetryPolicy, TaskName, format_duration, nearest, parse_duration,
};
use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token};

/// What stands in the brackets of `#[task(…)]`, checked.
#[derive(Default)]
pub(crate) struct Attributes {
    /// The stable name, if it is not the function's.
    pub(crate) name: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) priority: u8,
    pub(crate) timeout: Option<Duration>,
    /// The policy as it was written.
    pub(crate) retry: Option<String>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) delivery: Delivery,
    /// Where the facade is found.
    pub(crate) facade: Option<Path>,
}

const KNOWN: [&str; 9] =
    ["name", "queue", "priority", "timeout", "retry", "max_attempts", "ttl", "delivery", "crate"];

impl Attributes {
    /// Reads the list and reports every mistake in it.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let entries = Punctuated::<Entry, Token![,]>::parse_terminated.parse2(tokens)?;
        let mut attributes = Self::default();
        let mut seen: Vec<String> = Vec::new();
        let mut mistakes: Option<Error> = None;
        for entry in &entries {
            let key = entry.key.unraw().to_string();
            let outcome = if seen.contains(&key) {
                Err(Error::new(entry.key.span(), format!("`{key}` is given twice")))
            } else {
                attributes.set(&key, entry)
            };
            if let Err(error) = outcome {
                collect(&mut mistakes, error);
            }
            seen.push(key);
        }
        if matches!(attributes.delivery, Delivery::AtMostOnce) {
            for entry in &entries {
                let key = entry.key.unraw().to_string();
                if key == "retry" || key == "max_attempts" && attributes.max_attempts != Some(1) {
                    collect(
                        &mut mistakes,
                        Error::new(
                            entry.key.span(),
                            format!(
                                "a task that is delivered at most once is never tried again: remove `{key}`, or \
                                 use delivery = \"at_least_once\""
                            ),
                        ),
                    );
                }
            }
        }
        mistakes.map_or(Ok(attributes), Err)
    }

    fn set(&mut self, key: &str, entry: &Entry) -> Result<()> {
        match key {
            "name" => {
                let text = entry.text("a name in quotes, such as \"reports/daily\"")?;
                TaskName::new(text.value()).map_err(|error| Error::new(text.span(), error))?;
                self.name = Some(text.value());
            }
            "queue" => {
                let text = entry.text("the name of a queue in quotes, such as \"media\"")?;
                QueueName::new(text.value()).map_err(|error| Error::new(text.span(), error))?;
                self.queue = Some(text.value());
            }
            "priority" => {
                let (text, span) = entry.number("a number from 0 to 9, higher first")?;
                let priority: Priority = text.parse().map_err(|error| Error::new(span, error))?;
                self.priority = priority.get();
            }
            "timeout" => self.timeout = Some(entry.duration("an attempt")?),
            "retry" => {
                let text =
                    entry.text("delays in quotes, such as \"5s, 1m, 10m\" or \"exponential(base=1s)\"")?;
                text.value().parse::<RetryPolicy>().map_err(|error| Error::new(text.span(), error))?;
                self.retry = Some(text.value());
            }
            "max_attempts" => {
                let (text, span) = entry.number("a number of attempts, at least 1")?;
                let attempts =
                    text.parse::<u32>().ok().filter(|attempts| *attempts >= 1).ok_or_else(|| {
                        Error::new(
                            span,
                            format!("max_attempts {text} is out of range; allowed are 1 to {}", u32::MAX),
                        )
                    })?;
                self.max_attempts = Some(attempts);
            }
            "ttl" => self.ttl = Some(entry.duration("a job")?),
            "delivery" => {
                let text = entry.text("\"at_least_once\" or \"at_most_once\"")?;
                self.delivery = match text.value().as_str() {
                    "at_least_once" => Delivery::AtLeastOnce,
                    "at_most_once" => Delivery::AtMostOnce,
                    other => {
                        let remedy = if other.contains("exactly") {
                            "; for effects that happen once, use the job's id as a key where they happen"
                        } else {
                            ""
                        };
                        return Err(Error::new(
                            text.span(),
                            format!(
                                "delivery {other:?} is not supported; known are \"at_least_once\" (the default) \
                                 and \"at_most_once\"{remedy}"
                            ),
                        ));
                    }
                };
            }
            "crate" => {
                let text = entry.text("a path in quotes, such as \"my_crate::celeriac\"")?;
                self.facade = Some(text.parse_with(Path::parse_mod_style)?);
            }
            _ => return Err(unknown(&entry.key, key)),
        }
        Ok(())
    }
}

/// One `key = value`.
struct Entry {
    key: Ident,
    /// `None` when the key stands alone.
    value: Option<Expr>,
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error(format!("expected `key = value`; known keys are {}", KNOWN.join(", "))));
        }
        let key = input.call(Ident::parse_any)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Some(input.parse()?)
        } else {
            None
        };
        Ok(Self { key, value })
    }
}

impl Entry {
    fn text(&self, wanted: &str) -> Result<LitStr> {
        match self.literal() {
            Some(Lit::Str(text)) => Ok(text.clone()),
            _ => Err(self.unfit(wanted)),
        }
    }

    fn number(&self, wanted: &str) -> Result<(String, proc_macro2::Span)> {
        match (self.literal(), &self.value) {
            (Some(Lit::Int(number)), _) if number.suffix().is_empty() => {
                Ok((number.base10_digits().to_owned(), number.span()))
            }
            // A sign is not part of a literal; the range check is to name the number as it was written.
            (None, Some(Expr::Unary(unary))) => match &*unary.expr {
                Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
                    let digits = number.base10_digits();
                    Ok((
                        format!("-{digits}"),
                        unary.op.span().join(number.span()).unwrap_or_else(|| number.span()),
                    ))
                }
                _ => Err(self.unfit(wanted)),
            },
            _ => Err(self.unfit(wanted)),
        }
    }

    fn duration(&self, whose: &str) -> Result<Duration> {
        let text = self.text("a duration in quotes with its unit, such as \"30s\"")?;
        let duration = parse_duration(&text.value()).map_err(|error| Error::new(text.span(), error))?;
        if duration.is_zero() {
            return Err(Error::new(
                text.span(),
                format!(
                    "{} of zero leaves {whose} no time at all; leave `{0}` out for no limit",
                    self.key.unraw()
                ),
            ));
        }
        // Stores keep microseconds; a shorter limit would silently become none.
        if duration < Duration::from_micros(1) {
            return Err(Error::new(text.span(), format!("{} is too short", format_duration(duration))));
        }
        Ok(duration)
    }

    fn literal(&self) -> Option<&Lit> {
        match &self.value {
            Some(Expr::Lit(ExprLit { lit, .. })) => Some(lit),
            _ => None,
        }
    }

    fn unfit(&self, wanted: &str) -> Error {
        let key = self.key.unraw();
        if !KNOWN.contains(&key.to_string().as_str()) {
            return unknown(&self.key, &key.to_string());
        }
        let span = self.value.as_ref().map_or_else(|| self.key.span(), Spanned::span);
        Error::new(span, format!("`{key}` takes {wanted}"))
    }
}

/// Adds one more mistake to those found so far.
pub(crate) fn collect(mistakes: &mut Option<Error>, error: Error) {
    match mistakes {
        Some(first) => first.combine(error),
        None => *mistakes = Some(error),
    }
}

fn unknown(key: &Ident, text: &str) -> Error {
    let hint = nearest(text, KNOWN).map(|known| format!("did you mean `{known}`? ")).unwrap_or_default();
    Error::new(key.span(), format!("unknown attribute `{text}`; {hint}known are {}", KNOWN.join(", ")))
}
