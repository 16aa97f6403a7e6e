#![allow(unused)]

use celeriac::task;

#[task(priority = 10)]
fn over() {}

#[task(priority = -1)]
fn under() {}

#[task(priority = "high")]
fn word() {}

fn main() {}
