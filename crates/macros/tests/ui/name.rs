#![allow(unused)]

use celeriac::task;

#[task(name = "")]
fn empty() {}

#[task(name = "two words")]
fn space() {}

#[task(queue = "high,low")]
fn queue() {}

#[task]
fn größe() {}

const NAME: &str = "constant";

#[task(name = NAME)]
fn no_literal() {}

fn main() {}
