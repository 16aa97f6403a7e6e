//! What a person sees who uses `#[task]` wrongly. The texts are those of the toolchain in `rust-toolchain.toml`;
//! write them anew with `TRYBUILD=overwrite cargo test -p celeriac --test ui`.

#[test]
fn mistakes_are_named_at_their_place() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass_*.rs");
    for mistake in [
        "argument_type",
        "delivery",
        "duration",
        "generic",
        "impl_trait",
        "name",
        "not_a_function",
        "not_send",
        "output",
        "pattern",
        "priority",
        "receiver",
        "reference",
        "retry",
        "state_type",
        "unknown_attribute",
        "wrong_argument",
    ] {
        cases.compile_fail(format!("tests/ui/{mistake}.rs"));
    }
}
