#![allow(unused)]

use celeriac::task;

#[task(delivery = "exactly_once")]
fn unsupported() {}

#[task(delivery = "at_most_once", retry = "5s")]
fn contradiction() {}

#[task(delivery = "at_most_once", max_attempts = 3)]
fn contradiction_too() {}

fn main() {}
