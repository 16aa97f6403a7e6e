//! The tasks. Each is a thin cover over a type that can be used without a queue.

use std::collections::BTreeMap;
use std::path::PathBuf;

use celeriac::{Context, State, TaskError, task};
use serde_json::Value;

use crate::courier::{Courier, Sender};
use crate::file_digest::{DigestError, FileDigest, Go};
use crate::request::Request;

/// Delivers one HTTP request; `docs/http-task.md` describes each argument and each answer.
///
/// Eight attempts over about nine hours: a receiver that is down in the evening has the night.
#[task(retry = "5s, 30s, 2m, 10m, 30m, 2h, 6h")]
#[expect(clippy::too_many_arguments, reason = "each is a field of the job's arguments")]
pub async fn http(
    url: String,
    method: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    body: Option<Value>,
    timeout: Option<String>,
    sign_with: Option<String>,
    courier: State<Courier>,
    context: Context,
) -> Result<(), TaskError> {
    let request = Request { url, method, headers: headers.unwrap_or_default(), body, timeout, sign_with };
    let sender = Sender { job: context.job_id(), attempt: context.attempt() };
    let delivered = courier.deliver(&request, sender).await?;
    tracing::info!(job = %sender.job, status = delivered.status, "delivered");
    Ok(())
}

/// Computes the SHA-256 of a file and logs it. A relative path starts at the worker's working directory.
#[task]
pub fn digest(path: PathBuf, context: Context) -> Result<(), TaskError> {
    let go = || if context.is_cancelled() { Go::Stop } else { Go::On };
    let digest = FileDigest::of(&path, go).map_err(|error| match error {
        DigestError::NotAFile { .. } | DigestError::Unreadable { .. } => TaskError::reject(error),
        DigestError::Io { .. } | DigestError::Stopped { .. } => TaskError::failed(error),
    })?;
    tracing::info!(path = %path.display(), bytes = digest.bytes, sha256 = %digest.hex(), "digest");
    Ok(())
}
