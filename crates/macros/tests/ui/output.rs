#![allow(unused)]

use celeriac::task;

struct Silent;

#[task]
async fn number() -> u32 {
    1
}

#[task]
fn silent() -> Result<(), Silent> {
    Err(Silent)
}

fn main() {}
