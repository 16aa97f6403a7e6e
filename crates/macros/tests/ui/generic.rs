#![allow(unused)]

use celeriac::task;

#[task]
async fn by_type<T: Send>(value: T) {}

#[task]
fn by_lifetime<'a>(value: &'a str) {}

#[task]
unsafe fn not_safe() {}

#[task]
extern "C" fn foreign() {}

fn main() {}
