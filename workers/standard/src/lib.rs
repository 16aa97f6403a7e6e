//! Tasks that are useful without writing Rust, and the worker that serves them.
//!
//! * [`http()`] delivers a request: a webhook, a ping, a call to a service. [`Request`] builds its arguments,
//!   [`Courier`] sends it, [`Allowance`] says where to.
//! * [`digest()`] computes the SHA-256 of a file.
//!
//! The program `worker` of this package serves both. A worker of your own serves them beside your tasks when it
//! has a [`Courier`]:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use celeriac_standard::Courier;
//!
//! fn main() -> ExitCode {
//!     match Courier::from_env() {
//!         Ok(courier) => celeriac::worker().state(courier).main(),
//!         Err(error) => {
//!             eprintln!("error: {error}");
//!             ExitCode::from(2)
//!         }
//!     }
//! }
//! ```

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

use std::process::ExitCode;

mod address;
mod courier;
mod file_digest;
mod request;
mod resolver;
mod retry_after;
mod signature;
mod tasks;
#[cfg(test)]
mod test_server;

pub use address::{AddressRefused, Allowance, InvalidAllowance, Network};
pub use courier::{Courier, Delivered, Sender};
pub use file_digest::{DigestError, FileDigest, Go};
pub use request::{InvalidRequest, Request};
pub use signature::{KeyError, SigningKeys};
pub use tasks::{digest, http};

/// The standard worker: parses the command line, serves the tasks, and returns what `main` returns.
pub fn main() -> ExitCode {
    match Courier::from_env() {
        Ok(courier) => celeriac::worker().state(courier).main(),
        Err(error) => {
            eprintln!("error: {error}");
            // As for a wrong option: nothing was started.
            ExitCode::from(2)
        }
    }
}
