#![allow(unused)]

use celeriac::task;

#[task]
struct Thumbnail {
    width: u32,
}

fn main() {}
