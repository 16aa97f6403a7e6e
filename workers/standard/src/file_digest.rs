use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// What was read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDigest {
    /// How many bytes.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: [u8; 32],
}

/// Whether to go on reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Go {
    /// Read on.
    On,
    /// Stop: nobody waits for the result.
    Stop,
}

/// Why a file has no digest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DigestError {
    /// Reading failed for a reason that may pass.
    #[error("reading {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is a directory, a pipe, a device.
    #[error("{path} is {kind}, no regular file")]
    NotAFile {
        /// The path.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// It was told to stop.
    #[error("stopped while reading {path}")]
    Stopped {
        /// The file.
        path: String,
    },
    /// There is no such file, or this worker may not read it. No second attempt will change that.
    #[error("{path}: {source}")]
    Unreadable {
        /// The path.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

impl FileDigest {
    /// Reads a file from its beginning to its end, in steps of 64 KiB. Blocks. `go` is asked before each step.
    ///
    /// # Errors
    /// See [`DigestError`].
    pub fn of(path: &Path, mut go: impl FnMut() -> Go) -> Result<Self, DigestError> {
        let shown = || path.display().to_string();
        // Looked at before it is opened: opening a pipe would wait for a writer.
        let metadata = std::fs::metadata(path).map_err(|error| classify(path, error))?;
        if !metadata.is_file() {
            let kind = if metadata.is_dir() { "a directory" } else { "a device, a pipe or a socket" };
            return Err(DigestError::NotAFile { path: shown(), kind });
        }
        let mut file = File::open(path).map_err(|error| classify(path, error))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0;
        loop {
            if go() == Go::Stop {
                return Err(DigestError::Stopped { path: shown() });
            }
            match file.read(&mut buffer) {
                Ok(0) => return Ok(Self { bytes, sha256: hash.finalize().into() }),
                Ok(length) => {
                    hash.update(&buffer[..length]);
                    bytes += length as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(classify(path, error)),
            }
        }
    }

    /// The SHA-256 in hexadecimal.
    pub fn hex(&self) -> impl fmt::Display + use<> {
        Hex(self.sha256)
    }
}

struct Hex([u8; 32]);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn classify(path: &Path, source: io::Error) -> DigestError {
    let path = path.display().to_string();
    match source.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput => DigestError::Unreadable { path, source },
        _ => DigestError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(path: &Path) -> Result<FileDigest, DigestError> {
        FileDigest::of(path, || Go::On)
    }

    #[test]
    fn known_digests_come_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (content, sha256) in [
            (b"".to_vec(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc".to_vec(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (vec![b'a'; 1_000_000], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        ] {
            std::fs::write(&path, &content).unwrap();
            let found = digest(&path).unwrap();
            assert_eq!((found.bytes, found.hex().to_string().as_str()), (content.len() as u64, sha256));
        }
    }

    #[test]
    fn what_is_no_readable_file_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(digest(folder.path()), Err(DigestError::NotAFile { kind: "a directory", .. })));
        let missing = digest(&folder.path().join("missing")).unwrap_err();
        assert!(matches!(missing, DigestError::Unreadable { .. }), "{missing}");
        assert!(missing.to_string().contains("missing: No such file"), "{missing}");
        assert!(matches!(digest(&file.join("below")), Err(DigestError::Unreadable { .. })));
        assert!(matches!(digest(Path::new("a\0b")), Err(DigestError::Unreadable { .. })));
        assert!(matches!(digest(&folder.path().join("n".repeat(1000))), Err(DigestError::Unreadable { .. })));
        #[cfg(unix)]
        assert!(matches!(digest(Path::new("/dev/zero")), Err(DigestError::NotAFile { .. })));
    }

    #[test]
    fn it_stops_when_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0; 1_000_000]).unwrap();
        let mut steps = 0;
        let stopped = FileDigest::of(&path, || {
            steps += 1;
            if steps < 3 { Go::On } else { Go::Stop }
        });
        assert!(matches!(stopped, Err(DigestError::Stopped { .. })));
        assert_eq!(steps, 3);
    }
}
