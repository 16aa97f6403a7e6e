//! Quick start.

fn main() {}
