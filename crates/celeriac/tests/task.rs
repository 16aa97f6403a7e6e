//! What `#[task]` makes of a function: the call, its payload, and the run.

#![forbid(unsafe_code)]
#![deny(warnings, missing_debug_implementations, clippy::pedantic)]
#![allow(unused_qualifications, clippy::unused_async, clippy::unwrap_used)]

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use celeriac::core::{Delivery, JobId, Payload, Priority, RetryPolicy};
use celeriac::{Call, Context, Invocation, Registry, State, States, TaskDefinition, TaskError, task};

/// A task whose documentation stays.
#[task(queue = "media", priority = 3, timeout = "30s", retry = "5s, 1m, 10m", ttl = "2h")]
async fn thumbnail(path: PathBuf, width: u32, store: State<Store>) -> Result<String, TaskError> {
    if width == 0 {
        return Err(TaskError::reject("no width"));
    }
    let line = format!("{}@{width}", path.display());
    store.lines.lock().unwrap().push(line.clone());
    Ok(line)
}

#[derive(Debug, Default)]
struct Store {
    lines: std::sync::Mutex<Vec<String>>,
}

#[task]
fn plain() {}

#[task]
fn odd_parameters(#[allow(unused)] note: Option<String>, _ignored: u8) {}

#[task(name = "reports/daily", max_attempts = 2, delivery = "at_least_once")]
pub(crate) fn report(mut lines: Vec<String>, again: Context, context: Context) -> Result<(), String> {
    lines.push(context.task().to_string());
    assert_eq!(again.job_id(), context.job_id());
    Err(lines.join(", "))
}

#[task(delivery = "at_most_once")]
async fn once(note: Option<String>, r#type: Box<str>, _unused: [u8; 2]) {
    let _ = (note, r#type);
}

#[derive(Debug)]
struct Odd;

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("odd")
    }
}

impl std::error::Error for Odd {}

mod nested {
    use super::{Odd, task};

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Order {
        pub(super) id: u64,
    }

    pub(super) mod deeper {
        use super::task;

        #[task]
        pub(crate) async fn ship(order: super::Order, kind: self::kinds::Kind) -> Result<(), super::Odd> {
            let _ = (order.id, kind);
            Err(super::Odd)
        }

        pub(crate) mod kinds {
            #[derive(serde::Serialize, serde::Deserialize)]
            pub(crate) enum Kind {
                Fast,
            }
        }
    }

    #[task]
    #[allow(clippy::needless_pass_by_value)]
    #[cfg(not(any()))]
    pub(super) fn boxed(order: Order) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
        let _: u8 = order.id.to_string().parse()?;
        Err(Box::new(Odd))
    }

    #[task]
    #[cfg(any())]
    fn never_compiled(order: DoesNotExist) {}
}

#[task]
#[deprecated(note = "for the test")]
async fn old(text: String) {
    let _ = text;
}

/// The error is not `Send`; that matters to nobody, since nothing is awaited after it.
#[task]
async fn local_error(text: String) -> Result<(), Box<dyn std::error::Error>> {
    std::future::ready(()).await;
    let _: u8 = text.parse()?;
    Ok(())
}

#[task(crate = "renamed::queue")]
async fn elsewhere(number: i64) {
    let _ = number;
}

mod renamed {
    pub(crate) use celeriac as queue;
}

macro_rules! tasks {
    ($($name:ident: $argument:ty),*) => { $(
        #[task]
        async fn $name(argument: $argument, worker: State<$argument>) {
            let _ = (argument, worker);
        }
    )* };
}
tasks!(by_macro: String);

/// Runs a call as a worker does.
async fn run(definition: TaskDefinition, call: Call, states: States) -> Result<(), TaskError> {
    let job = call.into_job(JobId::from_key("test", "id")).unwrap();
    let context = Context::for_test(job.task.as_str());
    let round = Payload::from_stored(job.payload.as_bytes().to_vec());
    (definition.run)(Invocation::new(round, context, states)).unwrap().await
}

fn json(call: Call) -> serde_json::Value {
    call.into_job(JobId::from_key("test", "id")).unwrap().payload.to_json().unwrap()
}

#[tokio::test]
async fn a_call_is_encoded_decoded_and_run() {
    let mut states = States::default();
    states.insert(Store::default());
    run(thumbnail::definition(), thumbnail::call("a.png", 200), states.clone()).await.unwrap();
    let store = states.get::<Store>().unwrap();
    assert_eq!(*store.lines.lock().unwrap(), ["a.png@200"]);

    let error = run(thumbnail::definition(), thumbnail::call("a.png", 0), states).await.unwrap_err();
    assert!(matches!(&error, TaskError::Reject(text) if text == "no width"), "{error:?}");
}

#[tokio::test]
async fn the_function_stays_callable() {
    let store = State::new(Store::default());
    assert_eq!(thumbnail(PathBuf::from("b"), 1, store).await.unwrap(), "b@1");
    plain();
}

#[test]
fn the_payload_holds_the_arguments_by_name() {
    assert_eq!(json(thumbnail::call(PathBuf::from("a"), 7)), serde_json::json!({"path": "a", "width": 7}));
    assert_eq!(json(plain::call()), serde_json::json!({}));
    assert_eq!(
        json(once::call(None, "x", [1, 2])),
        serde_json::json!({"note": null, "type": "x", "_unused": [1, 2]})
    );
}

#[test]
fn attributes_become_the_specification() {
    let call = thumbnail::call("a", 1);
    let spec = call.task();
    assert_eq!(spec.name.as_str(), "thumbnail");
    assert_eq!(spec.queue.as_str(), "media");
    assert_eq!(spec.priority, Priority::constant(3));
    assert_eq!(spec.timeout, Some(Duration::from_secs(30)));
    assert_eq!(spec.retry, "5s, 1m, 10m".parse::<RetryPolicy>().unwrap());
    assert_eq!(spec.max_attempts, 4);
    assert_eq!(spec.ttl, Some(Duration::from_secs(7200)));
    assert_eq!(spec.delivery, Delivery::AtLeastOnce);

    assert_eq!(report::NAME, "reports/daily");
    assert_eq!((report::definition().spec)().max_attempts, 2);
    let once = (once::definition().spec)();
    assert_eq!((once.delivery, once.max_attempts), (Delivery::AtMostOnce, 1));
    assert_eq!(once.queue.as_str(), "default");
}

#[test]
fn a_definition_describes_the_function() {
    let definition = thumbnail::definition();
    let described: Vec<_> = definition.parameters.iter().map(|one| (one.name, one.ty)).collect();
    assert_eq!(described, [("path", "PathBuf"), ("width", "u32")]);
    assert!(definition.file.ends_with("tests/task.rs"), "{}", definition.file);
    let source = include_str!("task.rs").lines().nth(definition.line as usize - 1).unwrap();
    assert!(source.contains("fn thumbnail"), "line {} is {source}", definition.line);
    assert_eq!((definition.states)().len(), 1);
    let once = once::definition();
    assert_eq!((once.parameters[1].name, once.parameters[2].ty), ("type", "[u8; 2]"));
}

#[test]
fn an_optional_argument_may_be_missing_and_an_unknown_one_is_left_out() {
    let check = once::definition().check;
    assert!(check(&Payload::from_json(r#"{"type": "x", "_unused": [1, 2], "later": 1}"#).unwrap()).is_ok());
    let missing = check(&Payload::from_json(r#"{"note": "n"}"#).unwrap()).unwrap_err();
    assert!(missing.to_string().contains("type"), "{missing}");
    let wrong =
        (thumbnail::definition().check)(&Payload::from_json(r#"{"path": "a", "width": "wide"}"#).unwrap());
    assert!(wrong.unwrap_err().to_string().contains("u32"));
}

#[tokio::test]
async fn what_does_not_decode_is_not_run() {
    let payload = Payload::from_json("{}").unwrap();
    let invocation = Invocation::new(payload, Context::for_test("thumbnail"), States::default());
    assert!((thumbnail::definition().run)(invocation).is_err());
}

#[tokio::test]
async fn every_kind_of_error_becomes_a_failure() {
    let none = States::default;
    let error = run(report::definition(), report::call(vec!["a".to_owned()]), none()).await.unwrap_err();
    assert_eq!(error.to_string(), "a, reports/daily");
    let ship = nested::deeper::ship::call(nested::Order { id: 1 }, nested::deeper::kinds::Kind::Fast);
    let error = run(nested::deeper::ship::definition(), ship, none()).await.unwrap_err();
    assert_eq!(error.to_string(), "odd");
    let boxed = nested::boxed::call(nested::Order { id: 999 });
    let error = run(nested::boxed::definition(), boxed, none()).await.unwrap_err();
    assert!(error.to_string().contains("number too large"), "{error}");
    let error = run(local_error::definition(), local_error::call("x"), none()).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid digit found in string");
    let missing = run(thumbnail::definition(), thumbnail::call("a", 1), none()).await.unwrap_err();
    assert!(missing.to_string().contains("State<task::Store>"), "{missing}");
}

#[tokio::test]
async fn a_task_may_stand_in_a_function_and_name_its_types() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Local(u8);

    #[task(name = "in_a_function")]
    async fn local(value: Local) -> Result<(), u8> {
        Err(value.0)
    }

    let error = run(local::definition(), local::call(Local(7)), States::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "7");
}

#[test]
fn every_task_of_the_program_is_registered_under_its_stable_name() {
    let registry = Registry::collect().unwrap();
    let names: Vec<&str> = registry.names().map(celeriac::TaskName::as_str).collect();
    assert_eq!(
        names,
        [
            "boxed",
            "by_macro",
            "elsewhere",
            "in_a_function",
            "local_error",
            "odd_parameters",
            "old",
            "once",
            "plain",
            "reports/daily",
            "ship",
            "thumbnail"
        ]
    );
    let missing = registry.check(&States::default()).unwrap_err().to_string();
    assert!(missing.contains("State<") && missing.contains(".state(…)"), "{missing}");
}

#[test]
fn two_tasks_of_one_name_are_refused_with_both_places() {
    let (first, mut second) = (plain::definition(), report::definition());
    second.name = first.name;
    let error = Registry::new().with(first).unwrap().with(second).unwrap_err().to_string();
    for place in [first.line, second.line].map(|line| format!("tests/task.rs:{line}")) {
        assert!(error.contains(&place), "{error}");
    }
    assert!(error.contains("\"plain\""), "{error}");
}

#[test]
fn no_task_at_all_is_refused_with_the_line_to_add() {
    let error = Registry::new().check(&States::default()).unwrap_err().to_string();
    assert!(error.contains("use my_tasks as _;"), "{error}");
}
