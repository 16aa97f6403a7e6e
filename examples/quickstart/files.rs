//! Which files there are.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::summary::{bytes, count};

/// The files below a folder, within bounds that keep this example short.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    pub(crate) list: Vec<Found>,
    left_out: usize,
    more: bool,
}

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

impl Files {
    /// Looks at everything below `root`, without following links, and without what tools put there.
    pub(crate) fn below(root: &Path) -> Result<Self, String> {
        let failure = |error: std::io::Error| format!("{}: {error}", root.display());
        // Workers have another working directory, so the paths must be whole.
        let root = root.canonicalize().map_err(failure)?;
        let mut folders = vec![std::fs::read_dir(&root).map_err(failure)?];
        let mut files = Self { root, list: Vec::new(), left_out: 0, more: false };
        let mut total = 0;
        while let Some(entries) = folders.last_mut() {
            let Some(entry) = entries.next() else {
                folders.pop();
                continue;
            };
            let Ok(entry) = entry else { continue };
            // Of the entry itself: a link is neither a file nor a folder here.
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            if metadata.is_dir() {
                let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
                match std::fs::read_dir(&path) {
                    Ok(entries) if !skipped && folders.len() < DEEPEST => folders.push(entries),
                    _ => {}
                }
            } else if metadata.is_file() {
                // Arguments are text, so a path must be.
                if metadata.len() > LARGEST || path.to_str().is_none() {
                    files.left_out += 1;
                    continue;
                }
                if files.list.len() == MOST || total + metadata.len() > MOST_BYTES {
                    files.more = true;
                    break;
                }
                total += metadata.len();
                files.list.push(Found { path, bytes: metadata.len() });
            }
        }
        if files.list.is_empty() {
            return Err(format!("{}: there is no file to read", files.root.display()));
        }
        files.list.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.list.iter().map(|file| file.bytes).sum()
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = count(self.list.len() as u64);
        write!(f, "{files} files, {}, below {}", bytes(self.bytes()), self.root.display())?;
        if self.more {
            write!(f, "\n(there are more; this example stops at {files})")?;
        }
        if self.left_out > 0 {
            write!(f, "\n({} left out: over {}, or a name that is no text)", self.left_out, bytes(LARGEST))?;
        }
        Ok(())
    }
}

/// Thousands of files that nobody wrote.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

/// Enough to see the speed, few enough to be done in seconds.
const MOST: usize = 20_000;
const MOST_BYTES: u64 = 1024 * 1024 * 1024;
const LARGEST: u64 = 64 * 1024 * 1024;

/// One open handle a level.
const DEEPEST: usize = 100;
