#![allow(unused)]

use celeriac::task;

#[task(retry = "5s, 1x")]
fn bad_tier() {}

#[task(retry = "exponential(speed=1s)")]
fn bad_key() {}

#[task(retry = "")]
fn empty() {}

#[task(retry = 3)]
fn number() {}

#[task(max_attempts = 0)]
fn no_attempts() {}

#[task(max_attempts = 4294967296)]
fn too_many_attempts() {}

fn main() {}
