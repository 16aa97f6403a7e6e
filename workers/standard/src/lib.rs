//! Tasks that are useful without writing Rust.
