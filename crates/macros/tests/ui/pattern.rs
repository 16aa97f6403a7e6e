#![allow(unused)]

use celeriac::task;

#[task]
fn tuple((width, height): (u32, u32)) {}

#[task]
fn nameless(_: u32) {}

#[task]
fn conditional(#[cfg(unix)] width: u32) {}

fn main() {}
