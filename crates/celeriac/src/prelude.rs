//! What a file with tasks needs: `use celeriac::prelude::*;`.

pub use crate::client::Client;
pub use crate::duration::{days, hours, millis, mins, secs};
pub use crate::worker_main::worker;
pub use crate::{Call, Context, State, TaskError, task};
