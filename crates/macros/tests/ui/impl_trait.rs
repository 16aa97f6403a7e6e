#![allow(unused)]

use celeriac::{State, task};

#[task]
async fn anything(name: impl Into<String>) {}

#[task]
async fn within(names: Vec<impl Send>) {}

#[task]
async fn nothing(pool: State) {}

fn main() {}
