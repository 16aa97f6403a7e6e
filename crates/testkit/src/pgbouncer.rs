use std::fs;
use std::io::{Error, Result};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::postgres::TestServer;

/// `pgbouncer` in transaction mode before a server: each transaction gets whichever session is free. It is gone with this
/// value, and with this process.
#[derive(Debug)]
pub struct TestPooler {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl TestPooler {
    /// Starts one.
    ///
    /// # Errors
    /// When `pgbouncer` is not installed or does not start; `tests/run` installs it.
    pub fn start(server: &TestServer) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("celeriac-pgbouncer-{}-{port}", std::process::id()));
        fs::create_dir(&folder)?;
        // It does not run as root, and must read its settings.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        fs::write(folder.join("users"), "\"postgres\" \"\"\n")?;
        // Fewer sessions than clients, so that none keeps its own.
        fs::write(
            folder.join("settings"),
            format!(
                "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres\n\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
                 auth_type = trust\nauth_file = {}\npool_mode = transaction\nmax_client_conn = 200\n\
                 default_pool_size = 4\n",
                server.port(),
                folder.join("users").display()
            ),
        )?;
        // It ends with this process, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if fs::metadata("/proc/self")?.uid() == 0 {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
        }
        let log = fs::File::create(folder.join("log"))?;
        let child = command
            .arg("pgbouncer")
            .arg(folder.join("settings"))
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut pooler = Self { child, port, folder };
        pooler.await_start()?;
        Ok(pooler)
    }

    /// The URL of the server's database through the pooler, without parameters.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn await_start(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(Error::other(format!("pgbouncer does not run: {ended:?}; it said: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for TestPooler {
    fn drop(&mut self) {
        // Both fail only for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Debian keeps it where only administrators look.
fn search_path() -> String {
    format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default())
}
