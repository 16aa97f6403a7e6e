//! Files that are not what they should be.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use celeriac::Client;
use celeriac::core::Error;
use celeriac_tests::{Site, call, figures, site, sound};
use rusqlite::Connection;
use serde_json::json;

/// Starts a worker on the site's store and gives what it said when it refused to.
async fn refusal(site: &Site) -> String {
    let mut worker = site.start_worker("");
    let status = worker.ended().await;
    assert_eq!(status.code(), Some(1), "{}", worker.errors());
    worker.errors()
}

/// A store from a newer program is left alone; the message has both versions.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let site = site!();
    let client = site.client().await;
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    drop(client);
    let version = |site: &Site| -> i64 {
        let connection = Connection::open(site.store()).unwrap();
        connection.query_row("pragma user_version", [], |row| row.get(0)).unwrap()
    };
    let supported = version(&site);
    assert!(supported > 0);
    Connection::open(site.store()).unwrap().pragma_update(None, "user_version", supported + 7).unwrap();
    let said = refusal(&site).await;
    assert!(said.contains(&format!("version {}", supported + 7)), "{said}");
    assert!(said.contains(&format!("up to {supported}")), "{said}");
    let error = Client::connect(&site.url()).await.unwrap_err();
    assert!(matches!(error, Error::SchemaTooNew { .. }), "{error}");
    assert_eq!(version(&site), supported + 7, "nothing was changed");

    Connection::open(site.store()).unwrap().pragma_update(None, "user_version", supported).unwrap();
    let client = site.client().await;
    assert_eq!(figures(client.broker(), "default").await.ready, 1);
    sound(client.broker()).await;
}

/// A file that is something else is refused and stays as it is, byte by byte.
#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let text = "Dear diary, today was a good day.\n".repeat(300);
    let site = site!();
    std::fs::write(site.store(), &text).unwrap();
    let said = refusal(&site).await;
    assert!(said.contains("no SQLite database"), "{said}");
    let error = Client::connect(&site.url()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "not_a_store");
    assert_eq!(std::fs::read_to_string(site.store()).unwrap(), text);
}

/// A database of another program is refused too: its tables are not ours to add to.
#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let site = site!();
    {
        let connection = Connection::open(site.store()).unwrap();
        connection.execute_batch("create table jobs (title text); insert into jobs values ('cook')").unwrap();
    }
    let error = Client::connect(&site.url()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "not_a_store", "{error}");
    refusal(&site).await;
    let connection = Connection::open(site.store()).unwrap();
    let title: String = connection.query_row("select title from jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(title, "cook");
}

/// A folder in the way, and a folder that is missing.
#[tokio::test]
async fn a_path_that_cannot_be_a_store_is_refused() {
    let site = site!();
    std::fs::create_dir(site.store()).unwrap();
    let error = Client::connect(&site.url()).await.unwrap_err();
    assert!(matches!(error, Error::NotAStore { .. } | Error::Unavailable { .. }), "{error:?}");
    let site = site!();
    let missing = site.folder().join("no/such/folder/jobs.db");
    let site = site.with_store(missing);
    let said = refusal(&site).await;
    assert!(said.contains("does not exist"), "{said}");
}

/// A file that may not be written: a typed error that names the remedy, and nothing hangs. Root may write everything, so
/// as root the program runs as somebody else.
#[tokio::test]
async fn a_read_only_file_is_a_clear_error() {
    let site = site!();
    let client = site.client().await;
    client.enqueue(call("record", &json!({"millis": 0}))).await.unwrap();
    // The last one to close it leaves a file without a log beside it.
    drop(client);
    let folder = site.folder().to_owned();
    // Where the program was built, somebody else may not be allowed to look.
    let program = folder.join("producer");
    std::fs::copy(site.producer(), &program).unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(&program, 0o755);
    let mut command = tokio::process::Command::new(&program);
    command.arg(site.url()).args(["record", "1", "1", "1", "0"]).current_dir("/");
    if rustix::process::getuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path != program {
            allow(&path, 0o444);
        }
    }
    allow(&folder, 0o555);
    let mut producer = site.start(command);
    let status = producer.ended().await;
    allow(&folder, 0o755);
    assert_eq!(status.code(), Some(1), "{}", producer.errors());
    assert!(producer.errors().starts_with("read_only:"), "{}", producer.errors());
    for file in std::fs::read_dir(&folder).unwrap() {
        allow(&file.unwrap().path(), 0o644);
    }
    let client = site.client().await;
    assert_eq!(figures(client.broker(), "default").await.enqueued, 1);
    sound(client.broker()).await;
}
