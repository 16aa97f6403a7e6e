//! The tasks. An ordinary function becomes one by `#[task]`.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use celeriac::prelude::*;
use celeriac::{Registry, RegistryError};
use sha2::{Digest as _, Sha256};

use crate::files::Found;
use crate::measurements::{Measurement, Notebook};

/// The same task as the standard worker's, which can take over what is left. This one also notes how long it took.
#[task]
pub(crate) fn digest(path: PathBuf, context: Context, notebook: State<Notebook>) -> Result<(), TaskError> {
    let waited = SystemTime::now().duration_since(context.enqueued_at().to_system_time()).unwrap_or_default();
    let started = Instant::now();
    let (bytes, sha256) = sha256_of(&path).map_err(|error| match error.kind() {
        // No attempt will find a file that is not there: straight to the bin.
        ErrorKind::NotFound | ErrorKind::PermissionDenied => {
            TaskError::reject(format!("{}: {error}", path.display()))
        }
        _ => TaskError::failed(format!("{}: {error}", path.display())),
    })?;
    notebook.add(&Measurement { waited, ran: started.elapsed(), bytes, sha256, path })?;
    Ok(())
}

/// Fails twice and works at the third attempt, as things do that depend on a network.
#[task(retry = "20ms, 60ms")]
pub(crate) async fn recovers(context: Context) -> Result<(), String> {
    match context.attempt() {
        1 | 2 => Err("connection reset by peer".to_owned()),
        _ => Ok(()),
    }
}

/// Fails until no attempt is left.
#[task(retry = "20ms, 60ms")]
pub(crate) async fn never_works() -> Result<(), String> {
    Err("503 service unavailable".to_owned())
}

/// A mistake in the program. The worker catches the panic and lives on.
#[task(retry = "20ms")]
pub(crate) fn panics(dividend: u32, divisor: u32) {
    println!("{}", dividend / divisor);
}

/// The worst that a job can do. Its process dies at once; a new one takes over, and after three such deaths the
/// queue gives up on this job, and on no other.
#[task]
pub(crate) fn kills_its_worker() {
    std::process::abort();
}

/// What the workers register.
pub(crate) fn registry() -> Result<Registry, RegistryError> {
    Registry::new()
        .with(digest::definition())?
        .with(recovers::definition())?
        .with(never_works::definition())?
        .with(panics::definition())?
        .with(kills_its_worker::definition())
}

/// The call for one file. Small ones go first.
pub(crate) fn digest_of(file: &Found) -> Call {
    let call = digest::call(file.path.clone());
    if file.bytes < SMALL { call.queue("high") } else { call }
}

/// Jobs with a difficult life: two that recover, and [`HOPELESS`] that do not.
pub(crate) fn trouble(folder: &Path) -> Vec<Call> {
    vec![
        recovers::call(),
        recovers::call(),
        digest::call(missing_file(folder)),
        // As another program might send it: the argument has the wrong type.
        Call::from_json((digest::definition().spec)(), r#"{"path": 42}"#),
        never_works::call(),
        panics::call(1, 0),
        kills_its_worker::call(),
    ]
}

/// A file that is not there.
pub(crate) fn missing_file(folder: &Path) -> PathBuf {
    folder.join("no-such-file")
}

fn sha256_of(path: &Path) -> std::io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => {
                hash.update(&buffer[..length]);
                bytes += length as u64;
            }
        }
    }
    Ok((bytes, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Below this a file is small.
const SMALL: u64 = 64 * 1024;

/// How many of [`trouble`] end in the bin.
pub(crate) const HOPELESS: u64 = 5;
