//! Random histories, run on an engine and on the [`ReferenceBroker`](crate::ReferenceBroker) at once: after each step
//! both must have given the same answer and look the same from outside.
//!
//! Steps that depend on time use durations of zero or of hours, so both sides see the same. Where the contract leaves
//! an order open (jobs that came back together from a dead worker), the reference follows the engine.
//!
//! ```ignore
//! #[test]
//! fn behaves_like_the_reference() {
//!     celeriac_testkit::model::run::<MyEngine>(64);
//! }
//! ```

use proptest::collection::vec;
use proptest::test_runner::{Config, TestError, TestRunner};

use crate::conformance::Fixture;

mod pair;
mod step;

/// The longest history. Longer ones found nothing that these did not.
const MOST_STEPS: usize = 80;

/// Runs `cases` random histories, each on a fresh store; the environment variable `PROPTEST_CASES` goes before.
///
/// # Panics
/// When the engine and the reference differ. The message has the shortest history that was found for it.
pub fn run<F: Fixture>(cases: u32) {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    // The shortest history is in the message; a file beside the source would be written on machines that only test.
    config.failure_persistence = None;
    config.max_shrink_iters = 1_000;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("no runtime: {error}"));
    let histories = vec(step::any_step(), 1..MOST_STEPS);
    let result = TestRunner::new(config).run(&histories, |steps| {
        runtime.block_on(async {
            let fixture = F::open().await;
            let mut pair = pair::Pair::new(fixture.broker(), fixture.other()).await;
            for step in &steps {
                pair.take(step).await?;
            }
            pair.finish().await
        })
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => {
            let listed: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
            panic!("after {} steps: {reason}\nthe history:\n{}", steps.len(), listed.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use celeriac_core::Broker;

    use super::*;
    use crate::ReferenceBroker;

    struct Reference(ReferenceBroker);

    impl Fixture for Reference {
        async fn open() -> Self {
            Self(ReferenceBroker::new())
        }

        fn broker(&self) -> Arc<dyn Broker> {
            Arc::new(self.0.handle())
        }

        fn other(&self) -> Arc<dyn Broker> {
            Arc::new(self.0.handle())
        }
    }

    /// That the comparison itself is fair: one thing compared with itself never differs.
    #[test]
    fn the_reference_behaves_like_itself() {
        run::<Reference>(64);
    }
}
