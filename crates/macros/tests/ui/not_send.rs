#![allow(unused)]

use std::rc::Rc;

use celeriac::task;

#[task]
async fn holds_an_rc() {
    let shared = Rc::new(1);
    std::future::ready(()).await;
    drop(shared);
}

fn main() {}
