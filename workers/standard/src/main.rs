//! The standard worker.

fn main() {}
