//! What the whole-system tests share: a [`Site`] is one store with the programs that work on it.
//!
//! The tests start real processes and end them as a bad day would: by `kill -9`, by stopping them for longer than their
//! lease, by taking the disk away. What ran is known from a ledger that handlers write themselves (see [`Entry`]), apart
//! from what the store says.

#![expect(clippy::unwrap_used, reason = "what breaks here is a failure of the test that asked for it")]

mod site;

pub use site::ledger::{Entry, Event};
pub use site::process::Process;
pub use site::{Site, buried, call, drained, eventually, figures, jobs_in, sound};

/// Makes of each `async fn NAME(site: Site)` two tests, `sqlite::NAME` and `postgres::NAME`: what a store promises does not
/// depend on its engine.
#[macro_export]
macro_rules! on_every_engine {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod sqlite {
            $($(#[$attribute])* #[tokio::test] async fn $name() { super::$name($crate::site!()).await; })+
        }
        mod postgres {
            $($(#[$attribute])* #[tokio::test] async fn $name() {
                super::$name($crate::site!().on_postgres()).await;
            })+
        }
    };
}

/// A [`Site`] with the programs of this package. A macro, because only a test knows where they are.
#[macro_export]
macro_rules! site {
    () => {
        $crate::Site::new(env!("CARGO_BIN_EXE_test-worker"), env!("CARGO_BIN_EXE_test-producer"))
    };
}
