use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::store::{Missing, Store};

/// Opening a store migrates it, under the store's lock; this command does nothing more, so that it can be done
/// before the first worker of a new version starts.
pub(crate) async fn run(store: &Store, output: &mut Output) -> Result<Exit, Failure> {
    let created = store.file()?.is_some_and(|path| !path.exists());
    let broker = store.open(Missing::Create).await?;
    if output.is_json() {
        output.json(&serde_json::json!({ "store": broker.to_string(), "created": created }))?;
    } else if created {
        output.line(format_args!("{broker} created"))?;
    } else {
        output.line(format_args!("{broker} has the schema of this program"))?;
    }
    Ok(Exit::Done)
}
