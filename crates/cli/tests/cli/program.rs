use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use celeriac::core::{Broker, ParameterInfo, QueueName, TaskInfo, TaskName, TaskSpec, WorkerId, WorkerInfo};
use celeriac::postgres::tokio_postgres;
use serde_json::Value;
use tempfile::TempDir;

/// The program and a store of its own.
pub(crate) struct Program {
    folder: TempDir,
    url: String,
}

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    /// With a store that has a task `thumbnail` on the queue `media`.
    pub(crate) fn with_task() -> Self {
        let program = Self::with_empty_store();
        program.on_the_broker(async |broker| {
            let media = QueueName::new("media").unwrap();
            broker.declare(media.clone(), Default::default()).await.unwrap();
            let mut spec = TaskSpec::new(TaskName::new("thumbnail").unwrap());
            spec.queue = media.clone();
            spec.priority = 3.try_into().unwrap();
            let parameters = [("path", "PathBuf"), ("width", "u32"), ("height", "Option<u32>")]
                .map(|(name, ty)| ParameterInfo { name: name.into(), ty: ty.into() });
            let id = WorkerId::from_uuid(uuid::Uuid::now_v7());
            let mut worker = WorkerInfo::new(id, "host:1", [media], Duration::from_secs(60));
            worker.tasks = vec![TaskInfo::new(&spec, parameters.to_vec())];
            broker.register(worker).await.unwrap();
            broker.retire(id).await.unwrap();
        });
        program
    }

    /// With a store that has nothing in it.
    pub(crate) fn with_empty_store() -> Self {
        let program = Self::without_store();
        program.ok(&["migrate"]);
        program
    }

    /// With a URL where no store is yet.
    pub(crate) fn without_store() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        Self { folder, url }
    }

    /// With the URL of a schema on PostgreSQL that is not there yet.
    pub(crate) fn on_postgres() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: celeriac_testkit::postgres::fresh_url().unwrap() }
    }

    /// The same store for another role of the database.
    pub(crate) fn as_role(&self, role: &str) -> Self {
        let url = self.url.replace("//postgres@", &format!("//{role}@"));
        Self { folder: tempfile::tempdir().unwrap(), url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn url_of_schema(&self, schema: &str) -> String {
        format!("{}schema={schema}", self.url.split_once("schema=").unwrap().0)
    }

    /// The schema of a store on PostgreSQL.
    pub(crate) fn schema(&self) -> &str {
        self.url.split_once("schema=").unwrap().1
    }

    /// Runs statements as `psql` does.
    pub(crate) fn on_postgres_itself(&self, sql: &str) {
        let server = self.url.split('?').next().unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
        });
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command, with the store in its environment.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = bare(words);
        command.env("CELERIAC_BROKER", &self.url);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Run {
        run(&mut self.command(words))
    }

    /// Runs and gives the text; it must succeed without a word on the error output.
    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let run = self.run(words);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{words:?} printed {}", run.out);
        run.out
    }

    /// Runs with `--json` and gives the document; it must succeed.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let mut words = words.to_vec();
        words.push("--json");
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    pub(crate) fn run_with_input(&self, words: &[&str], input: &[u8]) -> Run {
        let mut child = self
            .command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || pipe.write_all(&input));
        let run = Run::from(child.wait_with_output().unwrap());
        writer.join().unwrap().unwrap();
        run
    }

    /// Does something that the command line cannot do.
    pub(crate) fn on_the_broker<T>(&self, act: impl AsyncFnOnce(Arc<dyn Broker>) -> T) -> T {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let broker = celeriac::connect_broker(&self.url).await.unwrap();
            act(broker).await
        })
    }

    /// Puts jobs of `thumbnail` into the bin: all but the last are pushed out of a queue of length one.
    pub(crate) fn bury(&self, jobs: usize) {
        self.ok(&["queues", "declare", "media", "--max-length", "1", "--overflow", "drop-oldest"]);
        for number in 0..=jobs {
            let arguments = format!("{{\"path\": \"{number}.png\", \"width\": {number}}}");
            self.ok(&["enqueue", "thumbnail", &arguments]);
        }
        self.ok(&["queues", "declare", "media", "--max-length", "none"]);
        self.ok(&["queues", "purge", "media", "--yes"]);
    }
}

/// The command without a store.
pub(crate) fn bare(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celeriac"));
    command.args(words).env_remove("CELERIAC_BROKER").stdin(Stdio::null());
    command
}

pub(crate) fn run(command: &mut Command) -> Run {
    command.output().unwrap().into()
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Run {
    /// All that a person sees, for a snapshot. `folder` is replaced, since it differs at each run.
    pub(crate) fn shown(&self, folder: Option<&Path>) -> String {
        let text = format!("exit {}\n{}{}", self.code, self.out, self.err);
        match folder {
            Some(folder) => text.replace(&folder.display().to_string(), "FOLDER"),
            None => text,
        }
    }

    /// The error of `--json`.
    #[track_caller]
    pub(crate) fn error(&self) -> (String, String) {
        let document: Value = serde_json::from_str(&self.err).unwrap_or_else(|_| panic!("{self:?}"));
        let field = |name: &str| document["error"][name].as_str().unwrap().to_owned();
        (field("code"), field("message"))
    }
}
