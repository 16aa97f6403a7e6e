//! What may look odd and is fine.

#![deny(warnings)]
#![forbid(unsafe_code)]

use celeriac::{Context, TaskError, task};

/// Two contexts are the same one.
#[task]
pub async fn two_contexts(first: Context, second: Context) -> Result<(), TaskError> {
    let number: u32 = first.task().as_str().parse()?;
    Err(TaskError::retry_after(std::time::Duration::from_secs(1), format!("{number} {}", second.attempt())))
}

#[task]
fn optional(#[allow(unused)] note: Option<String>) {}

fn main() {
    let _ = (two_contexts::call(), optional::call(None));
}
