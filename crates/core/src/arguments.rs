//! Whether JSON arguments fit a task, told from the parameter types as they were written.
//!
//! A type is known here only by its text, so the check errs on the side of acceptance: what it refuses, the
//! worker could not decode; what it lets through, the worker still checks.

use std::fmt;

use serde_json::Value;

use crate::error::nearest;
use crate::name::TaskName;
use crate::task::{ParameterInfo, TaskInfo};

/// Arguments that do not fit their task, with everything that is wrong with them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidArguments {
    /// The task.
    pub task: TaskName,
    /// What is wrong; at least one.
    pub problems: Vec<ArgumentProblem>,
}

/// One thing that is wrong with arguments. The texts name types, never values other than numbers: arguments may
/// hold what must not reach a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentProblem {
    /// A required parameter is not there.
    Missing {
        /// The parameter.
        name: String,
        /// Its Rust type.
        ty: String,
    },
    /// The arguments are no JSON object.
    NoObject {
        /// What they are instead.
        given: String,
    },
    /// The task has no such parameter.
    Unknown {
        /// What was given.
        name: String,
        /// The parameter that is most like it.
        nearest: Option<String>,
        /// All parameters.
        known: Vec<String>,
    },
    /// A value cannot become the parameter's type.
    WrongType {
        /// The parameter, with the place inside it: `ids[3]`.
        name: String,
        /// The Rust type of that place.
        ty: String,
        /// What would fit.
        wanted: String,
        /// What was given.
        given: String,
    },
}

impl TaskInfo {
    /// Checks `arguments` against the task's parameters: all that are required are there, none is unknown, and
    /// each has a JSON type (and, for integers, a range) that its Rust type can take.
    ///
    /// A parameter of type `Option<…>` may be missing or null. A type that is not one of the usual ones takes
    /// any value.
    ///
    /// ```
    /// use celeriac_core::{ParameterInfo, TaskInfo, TaskName, TaskSpec};
    /// let spec = TaskSpec::new(TaskName::new("thumbnail").unwrap());
    /// let width = ParameterInfo { name: "width".into(), ty: "u32".into() };
    /// let task = TaskInfo::new(&spec, vec![width]);
    /// assert!(task.check_arguments(&serde_json::json!({"width": 200})).is_ok());
    /// let error = task.check_arguments(&serde_json::json!({"width": "wide"})).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "arguments of task thumbnail: width (u32) needs an integer from 0 to 4294967295, not a string"
    /// );
    /// ```
    ///
    /// # Errors
    /// [`InvalidArguments`] with every problem found.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), InvalidArguments> {
        let problems = match arguments.as_object() {
            Some(given) => {
                let mut problems = Vec::new();
                for parameter in &self.parameters {
                    match given.get(&parameter.name) {
                        Some(value) => problems.extend(misfit(parameter, value)),
                        None if Shape::of(&parameter.ty).takes_absence() => {}
                        None => problems.push(ArgumentProblem::Missing {
                            name: parameter.name.clone(),
                            ty: parameter.ty.clone(),
                        }),
                    }
                }
                problems.extend(
                    given
                        .keys()
                        .filter(|key| !self.parameters.iter().any(|parameter| parameter.name == **key))
                        .map(|key| self.unknown(key)),
                );
                problems
            }
            None => vec![ArgumentProblem::NoObject { given: describe(arguments) }],
        };
        if problems.is_empty() {
            return Ok(());
        }
        Err(InvalidArguments { task: self.name.clone(), problems })
    }

    fn unknown(&self, key: &str) -> ArgumentProblem {
        let known: Vec<String> = self.parameters.iter().map(|parameter| parameter.name.clone()).collect();
        ArgumentProblem::Unknown {
            name: shortened(key),
            nearest: nearest(key, known.iter().map(String::as_str)).map(str::to_owned),
            known,
        }
    }
}

impl std::error::Error for InvalidArguments {}

impl fmt::Display for InvalidArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arguments of task {}: ", self.task)?;
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name, ty } => write!(f, "{name} ({ty}) is missing"),
            Self::NoObject { given } => {
                write!(f, "they must be a JSON object such as {{\"path\": \"a.png\"}}, not {given}")
            }
            Self::Unknown { name, nearest: Some(nearest), .. } => {
                write!(f, "{name} is no parameter (did you mean {nearest}?)")
            }
            Self::Unknown { name, known, .. } if known.is_empty() => {
                write!(f, "{name} is no parameter; the task has none")
            }
            Self::Unknown { name, known, .. } => {
                write!(f, "{name} is no parameter; known are {}", known.join(", "))
            }
            Self::WrongType { name, ty, wanted, given } => {
                write!(f, "{name} ({ty}) needs {wanted}, not {given}")
            }
        }
    }
}

/// What JSON a Rust type takes, as far as its text tells.
#[derive(Clone, Debug, PartialEq)]
enum Shape<'a> {
    Anything,
    /// A list of any length, or of exactly `length`, all of one type.
    Array {
        item: &'a str,
        length: Option<usize>,
    },
    Bool,
    Char,
    Float,
    Integer {
        least: i128,
        most: u128,
    },
    Map {
        value: &'a str,
    },
    Nothing,
    Optional(&'a str),
    Text,
    Tuple(Vec<&'a str>),
}

impl<'a> Shape<'a> {
    fn of(ty: &'a str) -> Self {
        let ty = without_reference(ty.trim());
        // The text comes from a store; longer ones would nest deeper than the stack allows.
        if ty.len() > 1_000 {
            return Self::Anything;
        }
        if let Some(inside) = enclosed(ty, '[', ']') {
            return match split_top(inside, ';').as_slice() {
                [item, length] => Self::Array { item, length: length.trim().parse().ok() },
                _ => Self::Array { item: inside, length: None },
            };
        }
        if let Some(inside) = enclosed(ty, '(', ')') {
            let parts: Vec<&str> =
                split_top(inside, ',').into_iter().filter(|part| !part.trim().is_empty()).collect();
            return match parts.as_slice() {
                [] => Self::Nothing,
                // `(T)` is `T` in brackets; `(T,)` is a tuple.
                [one] if !inside.contains(',') => Self::of(one),
                _ => Self::Tuple(parts),
            };
        }
        let (path, generics) = match ty.split_once('<') {
            Some((path, rest)) => match rest.trim_end().strip_suffix('>') {
                Some(inside) => (path, split_top(inside, ',')),
                None => return Self::Anything,
            },
            None => (ty, Vec::new()),
        };
        let name = path.rsplit("::").next().unwrap_or(path).trim();
        let types: Vec<&str> =
            generics.into_iter().map(str::trim).filter(|part| !part.starts_with('\'')).collect();
        match (name, types.as_slice()) {
            ("String" | "str" | "PathBuf" | "Path" | "OsString" | "Uuid" | "Url", []) => Self::Text,
            ("IpAddr" | "Ipv4Addr" | "Ipv6Addr" | "SocketAddr", []) => Self::Text,
            ("char", []) => Self::Char,
            ("bool", []) => Self::Bool,
            ("f32" | "f64", []) => Self::Float,
            ("Option", [inner]) => Self::Optional(inner),
            ("Box" | "Arc" | "Rc" | "Cow" | "Wrapping" | "Reverse", [inner]) => Self::of(inner),
            ("Vec" | "VecDeque" | "LinkedList" | "BTreeSet" | "BinaryHeap", [item])
            | ("HashSet", [item] | [item, _]) => Self::Array { item, length: None },
            ("BTreeMap", [_, value]) | ("HashMap", [_, value] | [_, value, _]) => Self::Map { value },
            (name, []) => Self::integer(name).unwrap_or(Self::Anything),
            _ => Self::Anything,
        }
    }

    fn integer(name: &str) -> Option<Self> {
        let (plain, nonzero) = match name.strip_prefix("NonZero") {
            Some(rest) => (rest.to_ascii_lowercase(), true),
            None => (name.to_owned(), false),
        };
        let (sign, width) = plain.split_at_checked(1)?;
        let bits: u32 = match width {
            "8" | "16" | "32" | "64" | "128" => width.parse().ok()?,
            // The worker may run on another machine, but none of those that we serve has fewer than 64.
            "size" => 64,
            _ => return None,
        };
        match sign {
            "u" => Some(Self::Integer { least: i128::from(nonzero), most: u128::MAX >> (128 - bits) }),
            "i" => Some(Self::Integer {
                least: i128::MIN >> (128 - bits),
                most: (u128::MAX >> (128 - bits)) >> 1,
            }),
            _ => None,
        }
    }

    const fn takes_absence(&self) -> bool {
        matches!(self, Self::Optional(_))
    }

    fn wanted(&self) -> String {
        match self {
            Self::Anything => "any value".to_owned(),
            Self::Array { length: None, .. } => "an array".to_owned(),
            Self::Array { length: Some(length), .. } => format!("an array of {length}"),
            Self::Bool => "true or false".to_owned(),
            Self::Char => "a string of one character".to_owned(),
            Self::Float => "a number".to_owned(),
            Self::Integer { least, most } => format!("an integer from {least} to {most}"),
            Self::Map { .. } => "an object".to_owned(),
            Self::Nothing => "null".to_owned(),
            Self::Optional(inner) => format!("{} or null", Shape::of(inner).wanted()),
            Self::Text => "a string".to_owned(),
            Self::Tuple(items) => format!("an array of {}", items.len()),
        }
    }
}

/// The first place where `value` cannot become the parameter's type.
fn misfit(parameter: &ParameterInfo, value: &Value) -> Option<ArgumentProblem> {
    misfit_at(&parameter.name, &parameter.ty, value)
}

fn misfit_at(place: &str, ty: &str, value: &Value) -> Option<ArgumentProblem> {
    let shape = Shape::of(ty);
    let fits = match (&shape, value) {
        (Shape::Anything, _) | (Shape::Optional(_) | Shape::Nothing, Value::Null) => true,
        (Shape::Optional(inner), value) => return misfit_at(place, inner, value),
        (Shape::Text, Value::String(_))
        | (Shape::Bool, Value::Bool(_))
        | (Shape::Float, Value::Number(_)) => true,
        (Shape::Char, Value::String(text)) => text.chars().count() == 1,
        (Shape::Integer { least, most }, Value::Number(number)) => {
            // Integers past 64 bits are read as floating point; a 128-bit parameter may still take them.
            let is_wide = *most > u128::from(u64::MAX);
            match (number.as_u64(), number.as_i64()) {
                (Some(whole), _) => u128::from(whole) <= *most && i128::from(whole) >= *least,
                (None, Some(negative)) => i128::from(negative) >= *least,
                (None, None) => is_wide && number.as_f64().is_some_and(|float| float.fract() == 0.0),
            }
        }
        (Shape::Array { item, length }, Value::Array(items)) => {
            if length.is_none_or(|length| length == items.len()) {
                return (items.iter().enumerate())
                    .find_map(|(index, value)| misfit_at(&format!("{place}[{index}]"), item, value));
            }
            false
        }
        (Shape::Tuple(types), Value::Array(items)) => {
            if types.len() == items.len() {
                return (types.iter().zip(items).enumerate())
                    .find_map(|(index, (ty, value))| misfit_at(&format!("{place}[{index}]"), ty, value));
            }
            false
        }
        (Shape::Map { value: ty }, Value::Object(entries)) => {
            return entries
                .iter()
                .find_map(|(key, value)| misfit_at(&format!("{place}.{}", shortened(key)), ty, value));
        }
        _ => false,
    };
    if fits {
        return None;
    }
    Some(ArgumentProblem::WrongType {
        name: place.to_owned(),
        ty: ty.trim().to_owned(),
        wanted: shape.wanted(),
        given: given(&shape, value),
    })
}

/// What was given, with the usual cause if it can be seen.
fn given(shape: &Shape<'_>, value: &Value) -> String {
    let text = describe(value);
    let hint = match (shape, value) {
        (Shape::Integer { .. } | Shape::Float, Value::String(content)) if content.parse::<f64>().is_ok() => {
            " (write the number without quotes)"
        }
        (Shape::Bool, Value::String(content)) if content.parse::<bool>().is_ok() => {
            " (write it without quotes)"
        }
        (Shape::Text, Value::Number(_) | Value::Bool(_)) => " (write it in quotes)",
        _ => "",
    };
    text + hint
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "true or false".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Takes `&`, a lifetime and `mut` off a reference's text.
fn without_reference(ty: &str) -> &str {
    let Some(mut rest) = ty.strip_prefix('&').map(str::trim_start) else {
        return ty;
    };
    if let Some(lifetime) = rest.strip_prefix('\'') {
        rest = lifetime.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
    }
    rest.strip_prefix("mut ").unwrap_or(rest).trim_start()
}

fn enclosed(ty: &str, open: char, close: char) -> Option<&str> {
    ty.strip_prefix(open)?.strip_suffix(close)
}

/// Splits at `separator` where it is outside of all brackets.
fn split_top(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (index, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ if c == separator && depth == 0 => {
                parts.push(&text[start..index]);
                start = index + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A key as a message shows it: the caller may have sent a megabyte.
fn shortened(key: &str) -> String {
    match key.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::TaskSpec;

    fn task(parameters: &[(&str, &str)]) -> TaskInfo {
        let spec = TaskSpec::new(TaskName::new("thumbnail").unwrap());
        let parameters = parameters
            .iter()
            .map(|(name, ty)| ParameterInfo { name: (*name).to_owned(), ty: (*ty).to_owned() })
            .collect();
        TaskInfo::new(&spec, parameters)
    }

    fn takes(ty: &str, value: &Value) -> bool {
        task(&[("x", ty)]).check_arguments(&json!({ "x": value })).is_ok()
    }

    #[test]
    fn each_type_takes_what_its_decoder_takes() {
        let cases = [
            ("String", json!("a"), json!(1)),
            ("&'static str", json!("a"), json!(null)),
            ("& str", json!("a"), json!(["a"])),
            ("std::path::PathBuf", json!("a/b"), json!({})),
            ("Uuid", json!("0191"), json!(7)),
            ("char", json!("é"), json!("ab")),
            ("bool", json!(true), json!("true")),
            ("u8", json!(255), json!(256)),
            ("u8", json!(0), json!(-1)),
            ("i8", json!(-128), json!(-129)),
            ("i8", json!(127), json!(128)),
            ("u64", json!(u64::MAX), json!(-1)),
            ("i64", json!(i64::MIN), json!(u64::MAX)),
            ("usize", json!(3), json!(3.5)),
            ("u128", json!(1e30), json!(0.5)),
            ("i128", json!(-1e30), json!("1")),
            ("NonZeroU32", json!(1), json!(0)),
            ("std::num::NonZero<u32>", json!(0), Value::Null),
            ("f64", json!(3), json!("3")),
            ("f32", json!(0.5), json!(false)),
            ("Vec<u32>", json!([1, 2]), json!([1, -2])),
            ("Vec < Vec < String > >", json!([["a"], []]), json!([["a"], [1]])),
            ("[u8; 3]", json!([1, 2, 3]), json!([1, 2])),
            ("HashSet<String>", json!(["a"]), json!("a")),
            ("(String, u32)", json!(["a", 1]), json!(["a"])),
            ("()", json!(null), json!(0)),
            ("Option<u32>", json!(null), json!("x")),
            ("Option<Vec<Option<bool>>>", json!([true, null]), json!([0])),
            ("HashMap<String, u8>", json!({"a": 1}), json!({"a": 300})),
            ("BTreeMap<String, (u8, u8)>", json!({"a": [1, 2]}), json!([1])),
            ("Box<str>", json!("a"), json!(1)),
            ("Cow<'static, str>", json!("a"), json!(1)),
            ("Arc<Vec<u8>>", json!([1]), json!({})),
        ];
        for (ty, good, bad) in cases {
            assert!(takes(ty, &good), "{ty} must take {good}");
            // A type that takes everything is marked with null as its bad value.
            if ty != "std::num::NonZero<u32>" {
                assert!(!takes(ty, &bad), "{ty} must refuse {bad}");
            }
        }
    }

    #[test]
    fn unknown_types_take_anything() {
        for ty in ["Order", "serde_json::Value", "Duration", "Foo<", "Result<u8, u8>", "", "fn(u8) -> u8"] {
            for value in [json!(null), json!(1), json!("a"), json!({"a": 1}), json!([])] {
                assert!(takes(ty, &value), "{ty:?} {value}");
            }
        }
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let task = task(&[("path", "PathBuf"), ("width", "u32"), ("height", "Option<u32>")]);
        let error = task.check_arguments(&json!({"width": "200", "heigth": 3})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "arguments of task thumbnail: path (PathBuf) is missing; width (u32) needs an integer from 0 to \
             4294967295, not a string (write the number without quotes); heigth is no parameter (did you mean \
             height?)"
        );
        let error = task.check_arguments(&json!(["a.png", 200])).unwrap_err();
        assert!(error.to_string().ends_with("not an array of 2"), "{error}");
        assert!(task.check_arguments(&json!({"path": "a", "width": 1})).is_ok());
    }

    #[test]
    fn the_place_inside_a_parameter_is_named() {
        let error = task(&[("ids", "Vec<Option<u16>>")])
            .check_arguments(&json!({"ids": [1, null, 70_000]}))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "arguments of task thumbnail: ids[2] (u16) needs an integer from 0 to 65535, not the number 70000"
        );
    }

    #[test]
    fn messages_do_not_repeat_what_was_given() {
        let error = task(&[("n", "u8")]).check_arguments(&json!({"n": "secret"})).unwrap_err();
        assert!(!error.to_string().contains("secret"));
        let error = task(&[]).check_arguments(&json!({ "k".repeat(5000): 1 })).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
        assert!(error.to_string().ends_with("the task has none"), "{error}");
    }

    proptest! {
        #[test]
        fn no_type_text_panics(ty in ".{0,40}", number in any::<i64>()) {
            let _ = takes(&ty, &json!(number));
            let _ = takes(&ty, &json!([number]));
        }

        #[test]
        fn integers_are_judged_as_serde_does(value in any::<i64>()) {
            let json = json!(value);
            prop_assert_eq!(takes("u8", &json), serde_json::from_value::<u8>(json.clone()).is_ok());
            prop_assert_eq!(takes("i32", &json), serde_json::from_value::<i32>(json.clone()).is_ok());
            prop_assert_eq!(takes("u64", &json), serde_json::from_value::<u64>(json.clone()).is_ok());
            prop_assert_eq!(takes("u128", &json), serde_json::from_value::<u128>(json).is_ok());
        }
    }
}
