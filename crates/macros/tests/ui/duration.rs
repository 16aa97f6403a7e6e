#![allow(unused)]

use celeriac::task;

#[task(timeout = "30")]
fn without_unit() {}

#[task(timeout = 30)]
fn number() {}

#[task(timeout = "0s", ttl = "5 parsecs")]
fn zero_and_unknown_unit() {}

#[task(ttl = "-1h")]
fn negative() {}

fn main() {}
