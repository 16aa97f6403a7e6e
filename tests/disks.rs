//! Disks that are full, or may not be written for a while.

#![expect(clippy::unwrap_used, reason = "what breaks here fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use celeriac::Client;
use celeriac::core::Error;
use celeriac_tests::{Entry, Event, Site, call, drained, eventually, figures, site, sound};
use rustix::process::Signal;
use serde_json::json;

/// A small file system in memory. It needs the right to mount; without that a test falls back or says that it is left out.
struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    fn mount(folder: &Path) -> Option<Self> {
        let place = folder.join("disk");
        std::fs::create_dir(&place).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=6m", "celeriac-test"])
            .arg(&place)
            .output()
            .is_ok_and(|done| done.status.success());
        mounted.then_some(Self { place })
    }

    fn remount(&self, option: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{option}")]).arg(&self.place).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failed test may leave a process that still has it open for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.place).status();
    }
}

/// A site whose store is on a disk of its own, if the system lets us make one.
fn small_site() -> Option<(SmallDisk, Site)> {
    let site = site!();
    let Some(disk) = SmallDisk::mount(site.folder()) else {
        eprintln!("SKIPPED: this needs the right to mount a tmpfs");
        return None;
    };
    let store = disk.place.join("jobs.db");
    Some((disk, site.with_store(store)))
}

fn ended(ledger: &[Entry]) -> usize {
    ledger.iter().filter(|entry| entry.event == Event::Ended).count()
}

/// The disk fills up while a worker works. Enqueues fail with the right error and store nothing, the worker stays, and
/// when there is space again it goes on by itself.
#[tokio::test]
async fn a_full_disk_is_survived() {
    let Some((disk, site)) = small_site() else { return };
    let client = site.client().await;
    let worker = site.start_worker("--lease 30s");
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    site.ledger_until("the first job", |ledger| ended(ledger) == 1).await;

    // A job that is still running when the disk is full: its verdict has to wait.
    let running = client.enqueue(call("record", &json!({"millis": 1_500}))).await.unwrap().id();
    site.ledger_until("its start", |ledger| ledger.iter().any(|entry| entry.id == running)).await;
    let stone = disk.place.join("stone");
    let _ = std::fs::write(&stone, vec![0; 8 * 1024 * 1024]);
    let mut stored = 0;
    let error = loop {
        // Large payloads, so that the log must grow.
        let large = json!({"millis": 0, "ballast": "x".repeat(200_000)});
        match client.enqueue(call("record", &large)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 100, "a disk of 6 MiB takes no 20 MB");
    };
    assert!(matches!(error, Error::StoreFull { .. }), "{error:?}");
    assert!(error.is_transient());
    site.ledger_until("the running job's end", |ledger| {
        ledger.iter().any(|entry| entry.id == running && entry.event == Event::Ended)
    })
    .await;
    assert!(!worker.errors().contains("panicked"), "{}", worker.errors());

    std::fs::remove_file(&stone).unwrap();
    eventually("space", || async { client.enqueue(call("record", &json!({"millis": 0}))).await.ok() }).await;
    let figures = drained(client.broker(), "default").await;
    assert_eq!(figures.dead, 0);
    assert_eq!(figures.redelivered, 0, "the worker kept its lease and its verdict");
    assert_eq!(figures.done, figures.enqueued);
    assert!(client.job(running).await.unwrap().is_none());
    let runs =
        site.ledger().iter().filter(|entry| entry.id == running && entry.event == Event::Started).count();
    assert_eq!(runs, 1);
    sound(client.broker()).await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
}

/// A worker that is idle when the disk fills up takes what comes when there is space again.
#[tokio::test]
async fn an_idle_worker_survives_a_full_disk() {
    let Some((disk, site)) = small_site() else { return };
    let client = site.client().await;
    let worker = site.start_worker("--lease 500ms");
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    site.ledger_until("the first job", |ledger| ended(ledger) == 1).await;
    let stone = disk.place.join("stone");
    let _ = std::fs::write(&stone, vec![0; 8 * 1024 * 1024]);
    // Longer than its lease: it may be taken for dead, and registers anew.
    eventually("trouble that is noticed", || async {
        let full =
            client.enqueue(call("record", &json!({"millis": 0, "x": "y".repeat(100_000)}))).await.is_err();
        (full && worker.errors().contains("no space left")).then_some(())
    })
    .await;
    std::fs::remove_file(&stone).unwrap();
    let id = eventually("space", || async {
        client.enqueue(call("record", &json!({"millis": 0}))).await.ok().map(|stored| stored.id())
    })
    .await;
    site.ledger_until("the job", |ledger| ledger.iter().any(|entry| entry.id == id)).await;
    drained(client.broker(), "default").await;
    sound(client.broker()).await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
}

/// A disk that may only be read: a typed error; a worker that starts there waits, and goes to work when it may write.
#[tokio::test]
async fn a_read_only_disk_is_waited_for() {
    let Some((disk, site)) = small_site() else { return };
    // A file that is open for writing keeps its disk from being remounted, so those who meet the change are new ones.
    let client = site.client().await;
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    drop(client);
    eventually("the file closed", || async {
        (!site.store().with_extension("db-wal").exists()).then_some(())
    })
    .await;
    disk.remount("ro");
    let error = Client::connect(&site.url()).await;
    let error = match error {
        Err(error) => error,
        Ok(client) => client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap_err(),
    };
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    let missing = format!("sqlite:{}", disk.place.join("missing.db").display());
    let error = Client::connect(&missing).await.unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    let mut worker = site.start_worker("");
    eventually("a worker that says so and waits", || async {
        worker.errors().contains("read-only").then_some(())
    })
    .await;
    assert!(!worker.has_ended(), "{}", worker.errors());
    disk.remount("rw");
    site.ledger_until("the job", |ledger| ended(ledger) == 1).await;
    let client = site.client().await;
    drained(client.broker(), "default").await;
    sound(client.broker()).await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
}

/// Without the right to mount: a limit on the size of files stops a program's writes in the middle. What it was promised
/// is there, what was refused is not.
#[tokio::test]
async fn a_limit_on_file_sizes_loses_nothing() {
    let site = site!();
    let client = site.client().await;
    // `ulimit -f` counts blocks of 512 bytes in this shell's POSIX mode; the signal is ignored, so writes fail instead.
    let script = "trap '' XFSZ; ulimit -f 1500; exec \"$0\" \"$@\"";
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", script]).arg(site.producer()).arg(site.url());
    command.args(["record", "0", "50", "4", "0"]);
    let mut producer = site.start(command);
    let status = producer.ended().await;
    assert_eq!(status.code(), Some(1), "{}", producer.errors());
    let code = producer.errors().split(':').next().unwrap_or_default().to_owned();
    assert!(["store_full", "unavailable"].contains(&code.as_str()), "{}", producer.errors());
    let promised: Vec<_> = producer.output().lines().map(|line| line.parse().unwrap()).collect();
    assert!(!promised.is_empty());
    for id in &promised {
        assert!(client.job(*id).await.unwrap().is_some(), "job {id} was promised and is lost");
    }
    assert_eq!(figures(client.broker(), "default").await.ready, promised.len() as u64, "and nothing else is");
    sound(client.broker()).await;
    tokio::time::timeout(Duration::from_secs(60), client.enqueue(call("record", &json!({"millis": 0}))))
        .await
        .unwrap()
        .unwrap();
}
