#![allow(unused)]

use celeriac::task;

#[task(que = "media")]
fn near() {}

#[task(color = "red", piority = 3)]
fn far() {}

#[task(queue)]
fn alone() {}

#[task(queue = "media", queue = "mail")]
fn twice() {}

fn main() {}
