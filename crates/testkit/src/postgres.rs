//! A PostgreSQL server for tests, from the system's packages.
//!
//! [`TestServer::shared`] gives every test process of a run the same server; [`TestServer::private`] starts one that a
//! test may kill. Each test takes a schema of its own with [`fresh_schema`], so tests run in parallel.
//!
//! A server cannot outlive its tests: each test process holds a file lock while it uses one, and a watchdog, a small
//! shell loop in a process group of its own, stops the server and removes its folder once nobody holds the lock. The
//! lock goes with the process, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop. A busy machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server. Dropping it ends this process's use of it.
#[derive(Debug)]
pub struct TestServer {
    home: Home,
    /// Held shared for as long as the server is used.
    _users: File,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopMode {
    /// Sessions are ended, then an orderly stop.
    Fast,
    /// At once, with a recovery at the next start.
    Immediate,
    /// `kill -9` of the server's first process, as the kernel does it when memory runs out.
    Kill,
}

/// The folder of a server and the programs that run it.
#[derive(Clone, Debug)]
struct Home {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
}

impl TestServer {
    /// The server that all test processes of this user share, started if it does not run.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or does not start; the text says which program is missing.
    pub fn shared() -> Result<Self> {
        let programs = programs()?;
        let user = std::env::var("USER").unwrap_or_else(|_| "tests".to_owned());
        let folder = std::env::temp_dir().join(format!("celeriac-postgres-{user}"));
        // Held until this returns: one process starts the server, the others find it running.
        let _starting = lock_start(&folder)?;
        let users = lock_file(&folder, "users.lock")?;
        users.lock_shared()?;
        if let Ok(port) = fs::read_to_string(folder.join("port"))
            && let Ok(port) = port.trim().parse()
            && accepts(port)
        {
            return Ok(Self { home: Home { folder, programs, port }, _users: users });
        }
        let home = Home { folder, programs, port: free_port()? };
        home.prepare()?;
        home.start()?;
        home.watch()?;
        Ok(Self { home, _users: users })
    }

    /// A server for this test alone, which it may stop, kill and start again.
    ///
    /// # Errors
    /// As [`TestServer::shared`].
    pub fn private() -> Result<Self> {
        Self::private_with(Home::prepare)
    }

    fn private_with(prepare: impl FnOnce(&Home) -> Result<()>) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("celeriac-postgres-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let users = lock_file(&folder, "users.lock")?;
        users.lock_shared()?;
        let home = Home { folder, programs: programs()?, port: free_port()? };
        // Before anything is there that must not outlive this process.
        home.watch()?;
        prepare(&home)?;
        home.start()?;
        Ok(Self { home, _users: users })
    }

    /// A private server whose data lie on a file system of `megabytes`, which [`TestServer::fill_disk`] can fill.
    ///
    /// # Errors
    /// As [`TestServer::shared`], and where no file system may be mounted: for anybody but root.
    pub fn on_small_disk(megabytes: u32) -> Result<Self> {
        Self::private_with(|home| {
            fs::create_dir_all(home.data())?;
            let size = format!("size={megabytes}m");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(home.data()))?;
            home.prepare()
        })
    }

    /// Starts a streaming replica of this server.
    ///
    /// # Errors
    /// As [`TestServer::shared`].
    pub fn replica(&self) -> Result<Self> {
        let address = format!("host=127.0.0.1 port={} user=postgres", self.home.port);
        Self::private_with(|home| {
            if is_root() {
                run(Command::new("chown").arg("postgres").arg(&home.folder))?;
            }
            run(home
                .program("pg_basebackup")
                .args(["-d", &address, "-R", "-X", "stream", "-c", "fast", "-D"])
                .arg(home.data()))
        })
    }

    /// Makes a replica a server that takes writes.
    ///
    /// # Errors
    /// When it is none, or does not answer.
    pub fn promote(&self) -> Result<()> {
        self.home.control(&["promote", "-w"])
    }

    /// Leaves no free byte on a small disk.
    ///
    /// # Errors
    /// When the file that fills it cannot be made.
    pub fn fill_disk(&self) -> Result<()> {
        let mut ballast = File::create(self.home.data().join("ballast"))?;
        for size in [1 << 20, 1 << 12, 1] {
            let chunk = vec![0; size];
            while ballast.write_all(&chunk).is_ok() {}
        }
        Ok(())
    }

    /// Frees the disk, and starts the server again if it died of it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn free_disk(&self) -> Result<()> {
        fs::remove_file(self.home.data().join("ballast"))?;
        let deadline = Instant::now() + PATIENCE;
        let port = self.home.port.to_string();
        while run(self.home.program("pg_isready").args(["-h", "127.0.0.1", "-p", &port])).is_err() {
            if Instant::now() > deadline {
                return Err(Error::other("the server does not come back"));
            }
            if self.home.control(&["status"]).is_err() {
                self.home.start()?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The URL of its database, for a superuser, without parameters.
    pub fn url(&self) -> String {
        self.url_at(self.home.port)
    }

    /// The same through another port of this machine: that of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }

    /// Where it listens, on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.home.port
    }

    /// What it has written to its log so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(self.home.folder.join("log"))
    }

    /// Stops a private server.
    ///
    /// # Errors
    /// When it does not stop.
    pub fn stop(&self, mode: StopMode) -> Result<()> {
        match mode {
            StopMode::Fast => self.home.control(&["stop", "-m", "fast", "-w"]),
            StopMode::Immediate => self.home.control(&["stop", "-m", "immediate", "-w"]),
            StopMode::Kill => {
                let file = fs::read_to_string(self.home.data().join("postmaster.pid"))?;
                let first = file.lines().next().unwrap_or_default().to_owned();
                run(Command::new("kill").args(["-9", &first]))?;
                self.home.await_end()
            }
        }
    }

    /// Starts a private server again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self) -> Result<()> {
        self.home.start()
    }
}

/// A name for a schema that no other test has.
pub fn fresh_schema() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("t{}_{number}_{:08x}", std::process::id(), fastrand::u32(..))
}

/// The URL of a schema of its own on the shared server, which stays up for as long as this process runs.
///
/// # Errors
/// As [`TestServer::shared`].
pub fn fresh_url() -> Result<String> {
    static SERVER: Mutex<Option<TestServer>> = Mutex::new(None);
    // Only a panic of ours can poison the lock, and the server is as good as before.
    let mut server = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let running = match server.take() {
        Some(running) => running,
        None => TestServer::shared()?,
    };
    let url = format!("{}?schema={}", running.url(), fresh_schema());
    *server = Some(running);
    Ok(url)
}

impl Home {
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Makes a cluster without anything in it.
    fn prepare(&self) -> Result<()> {
        let data = self.data();
        if fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some()) {
            // Left by a server that the machine ended.
            fs::remove_dir_all(&data)?;
        }
        if is_root() {
            // The folder of the data may be there, empty: the place of a mounted disk.
            let places = [&self.folder, &data].into_iter().filter(|place| place.exists());
            run(Command::new("chown").arg("postgres").args(places))?;
        }
        run(self.program("initdb").arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]))
    }

    fn start(&self) -> Result<()> {
        let options = format!(
            "-p {} -k {} -c listen_addresses=127.0.0.1 -c max_connections=400 -c shared_buffers=128MB \
             -c max_wal_size=2GB -c fsync=on -c synchronous_commit=on",
            self.port,
            self.folder.display()
        );
        let log = self.folder.join("log");
        self.control(&["start", "-w", "-t", "100", "-l", &log.display().to_string(), "-o", &options])?;
        fs::write(self.folder.join("port"), self.port.to_string())
    }

    fn control(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.program("pg_ctl");
        command.arg("-D").arg(self.data()).args(arguments);
        // The server inherits what is open here; a pipe would keep the test runner waiting for its end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status()?;
        if status.success() {
            return Ok(());
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(5).collect();
        Err(Error::other(format!(
            "pg_ctl {arguments:?} failed with {status}; last lines of its log: {end:?}"
        )))
    }

    /// After a kill the other processes of the server end by themselves; until then it cannot be started.
    fn await_end(&self) -> Result<()> {
        let socket = self.folder.join(format!(".s.PGSQL.{}.lock", self.port));
        let deadline = Instant::now() + PATIENCE;
        while accepts(self.port) {
            if Instant::now() > deadline {
                return Err(Error::other("the killed server still answers"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // A start next to their last breath would be refused.
        let _ = fs::remove_file(socket);
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
        Ok(())
    }

    /// Starts the watchdog.
    fn watch(&self) -> Result<()> {
        const SCRIPT: &str = r#"
            cd "$1" || exit 0
            while sleep 3; do
                exec 8>starting.lock; flock -x 8
                exec 9>users.lock
                if flock -xn 9; then
                    $2 "$3/pg_ctl" -D "$1/data" stop -m immediate -w >/dev/null 2>&1
                    umount "$1/data" >/dev/null 2>&1
                    # Moved away first: who comes while it is removed must not find half of it.
                    cd / && mv "$1" "$1.removed.$$" && rm -rf "$1.removed.$$"
                    exit 0
                fi
                exec 9>&- 8>&-
            done
        "#;
        let become_postgres = if is_root() { "runuser -u postgres --" } else { "" };
        Command::new("sh")
            .args(["-c", SCRIPT, "watchdog"])
            .arg(&self.folder)
            .arg(become_postgres)
            .arg(&self.programs)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(drop)
    }

    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        if !is_root() {
            return Command::new(path);
        }
        // The server refuses to run as root.
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(path).current_dir("/");
        command
    }
}

/// The folder with `initdb` and `pg_ctl`: the newest under Debian's folder, or one of `PATH`.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_string_lossy().parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| is_complete(folder))
        .collect();
    found.sort();
    if let Some((_, folder)) = found.pop() {
        return Ok(folder);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find(|folder| is_complete(folder)).ok_or_else(|| {
        Error::other(
            "PostgreSQL is not installed: neither /usr/lib/postgresql/*/bin nor PATH has initdb and pg_ctl",
        )
    })
}

fn is_complete(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("pg_ctl").is_file()
}

fn is_root() -> bool {
    // Of the process itself: the standard library has no `geteuid`.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn lock_file(folder: &Path, name: &str) -> Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(name))
}

/// Locks the start of the shared server.
///
/// The watchdog of an earlier server holds the same lock while it removes the folder. Whoever waited for it then has
/// the lock of a file that is gone, and must begin anew.
fn lock_start(folder: &Path) -> Result<File> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let locked =
            fs::create_dir_all(folder).and_then(|()| lock_file(folder, "starting.lock")).and_then(|file| {
                file.lock()?;
                let current = is_current(&file, folder)?;
                Ok((file, current))
            });
        match locked {
            Ok((file, true)) => return Ok(file),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ if Instant::now() > deadline => {
                return Err(Error::other(format!("{} is removed again and again", folder.display())));
            }
            _ => {}
        }
    }
}

/// Whether a lock is the one that others find there.
fn is_current(starting: &File, folder: &Path) -> Result<bool> {
    let (ours, there) = (starting.metadata()?, fs::metadata(folder.join("starting.lock"))?);
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::other(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_folder_that_went_is_not_taken_for_one() {
        let folder = std::env::temp_dir().join(format!("celeriac-lock-{}", std::process::id()));
        let old = lock_start(&folder).unwrap();
        assert!(is_current(&old, &folder).unwrap());
        // What the watchdog does while it holds the lock.
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(is_current(&old, &folder).unwrap_err().kind(), ErrorKind::NotFound);
        // The old lock is still held; a new start does not wait for it.
        let new = lock_start(&folder).unwrap();
        assert!(is_current(&new, &folder).unwrap());
        assert!(!is_current(&old, &folder).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }
}
