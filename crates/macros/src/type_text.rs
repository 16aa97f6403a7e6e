use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Type;

/// A type as a person writes it: `Option<Vec<u32>>`, not `Option < Vec < u32 > >`.
pub(crate) fn type_text(ty: &Type) -> String {
    let mut text = String::new();
    write(ty.to_token_stream(), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    // Whether the punctuation before belongs together with what follows, as in `->` and `'a`.
    let mut joint = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                write(group.stream(), text);
                text.push_str(close);
                joint = false;
            }
            TokenTree::Punct(punct) => {
                let sign = punct.as_char();
                match sign {
                    ',' | ';' => {
                        text.push(sign);
                        text.push(' ');
                    }
                    '=' | '+' | '-' if !joint => {
                        text.push(' ');
                        text.push(sign);
                        if punct.spacing() == Spacing::Alone {
                            text.push(' ');
                        }
                    }
                    '>' if joint && text.ends_with('-') => text.push_str("> "),
                    '\'' if text.ends_with(char::is_alphanumeric) => text.push_str(" '"),
                    _ => text.push(sign),
                }
                joint = punct.spacing() == Spacing::Joint;
            }
            word => {
                if text.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                    text.push(' ');
                }
                text.push_str(&word.to_string());
                joint = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_as_they_are_written() {
        for text in [
            "u32",
            "Option<Vec<u32>>",
            "std::collections::BTreeMap<String, (u8, [u8; 4])>",
            "Box<dyn Fn(u8) -> u8 + Send>",
            "Cow<'static, str>",
            "<A as Trait>::Item",
            "&'static str",
        ] {
            let ty: Type = syn::parse_str(text).unwrap();
            assert_eq!(type_text(&ty), text);
        }
    }
}
