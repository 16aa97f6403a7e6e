#![allow(unused)]

use std::cell::Cell;

use celeriac::{State, task};

#[task]
fn counts(counter: State<Cell<u64>>) {
    counter.set(1);
}

fn main() {}
