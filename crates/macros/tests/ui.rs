//! What a person sees who uses `#[task]` wrongly.
//!
//! Write the texts anew with `TRYBUILD=overwrite cargo test -p celeriac-macros --test ui`.

use std::process::Command;

/// The compiler whose words are in the files of [`WITH_THE_COMPILER`].
const RECORDED_WITH: &str = "rustc 1.95.";

/// Mistakes that the macro itself explains: the same texts with every compiler.
const BY_THE_MACRO: [&str; 10] = [
    "delivery",
    "duration",
    "generic",
    "name",
    "not_a_function",
    "pattern",
    "priority",
    "reference",
    "retry",
    "unknown_attribute",
];

/// Mistakes that the compiler explains, with hints from us. Its words change from version to version.
const WITH_THE_COMPILER: [&str; 7] =
    ["argument_type", "impl_trait", "not_send", "output", "receiver", "state_type", "wrong_argument"];

// One test: each `TestCases` would build the crates again. And none that passes: for that they would have to be
// compiled to the end, not only checked. What is right is in the facade's tests.
#[test]
fn mistakes_are_named_at_their_place() {
    let cases = trybuild::TestCases::new();
    for mistake in BY_THE_MACRO {
        cases.compile_fail(format!("tests/ui/{mistake}.rs"));
    }
    let compiler = Command::new(option_env!("RUSTC").unwrap_or("rustc")).arg("--version").output().unwrap();
    let compiler = String::from_utf8(compiler.stdout).unwrap();
    if compiler.starts_with(RECORDED_WITH) {
        for mistake in WITH_THE_COMPILER {
            cases.compile_fail(format!("tests/ui/{mistake}.rs"));
        }
    } else {
        println!("SKIPPED: the words of another compiler than {RECORDED_WITH}x, this is {compiler}");
    }
}
