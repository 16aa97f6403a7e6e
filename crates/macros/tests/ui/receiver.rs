#![allow(unused)]

use celeriac::task;

#[task]
fn method(&self, id: u64) {}

fn main() {}
