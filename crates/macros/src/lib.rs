//! The `#[task]` attribute.
