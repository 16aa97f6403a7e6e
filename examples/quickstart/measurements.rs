//! What the workers note about each file, in a text file of their own.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// One file that was read.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// From the enqueue to the start.
    pub(crate) waited: Duration,
    pub(crate) ran: Duration,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) path: PathBuf,
}

/// Where a worker writes them.
#[derive(Debug)]
pub(crate) struct Notebook(Mutex<File>);

impl Notebook {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("measured-by-{}.txt", std::process::id()));
        Ok(Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Writes a line at once: a process that is killed loses none that were added.
    pub(crate) fn add(&self, measurement: &Measurement) -> io::Result<()> {
        let Measurement { waited, ran, bytes, sha256, path } = measurement;
        // A line break in a name would break the line.
        let path = path.to_string_lossy().replace('\\', "\\\\").replace('\n', "\\n");
        let line = format!("{} {} {bytes} {sha256} {path}\n", waited.as_micros(), ran.as_micros());
        self.0
            .lock()
            .map_err(|_| io::Error::other("a handler panicked while it wrote"))?
            .write_all(line.as_bytes())
    }
}

/// Everything that the workers wrote.
pub(crate) fn read(folder: &Path) -> io::Result<Vec<Measurement>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("measured-by-") {
            let text = std::fs::read_to_string(&path)?;
            all.extend(text.lines().filter_map(parse));
        }
    }
    Ok(all)
}

fn parse(line: &str) -> Option<Measurement> {
    let mut fields = line.splitn(5, ' ');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (waited, ran, bytes) = (number()?, number()?, number()?);
    let sha256 = fields.next()?.to_owned();
    let mut path = String::new();
    let mut escaped = false;
    for character in fields.next()?.chars() {
        match (escaped, character) {
            (false, '\\') => escaped = true,
            (true, 'n') => {
                path.push('\n');
                escaped = false;
            }
            _ => {
                path.push(character);
                escaped = false;
            }
        }
    }
    Some(Measurement {
        waited: Duration::from_micros(waited),
        ran: Duration::from_micros(ran),
        bytes,
        sha256,
        path: path.into(),
    })
}
