#![allow(unused)]

use celeriac::task;

#[task]
async fn thumbnail(path: String, width: u32) {
    let _ = (path, width);
}

fn main() {
    let _ = thumbnail::call("a.png", "wide");
    let _ = thumbnail::call("a.png");
}
