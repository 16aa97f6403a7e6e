#![allow(unused)]

use std::borrow::Cow;
use std::path::Path;

use celeriac::task;

struct Pool;

#[task]
fn text(name: &str) {}

#[task]
async fn several(path: &Path, numbers: &[u32], pool: &mut Pool) {}

#[task]
fn inside(names: Option<Vec<&str>>, place: Cow<'_, str>) {}

fn main() {}
