//! What every engine must do, as tests.
//!
//! An engine implements [`Fixture`] and writes one line, [`conformance!`](crate::conformance!), in a file of its
//! `tests` folder. That makes a test of each case, so a failure has a name. The cases know the
//! [`Broker`] trait and nothing else, so they hold for engines that do not exist yet.
//!
//! Engines keep their own clock, so the cases use durations of zero, of hours, or short ones whose end they wait for by
//! asking the store; no case sleeps for a guessed time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use celeriac_core::Broker;

pub use scene::{Scene, eventually};

pub mod claiming;
pub mod concurrency;
pub mod enqueueing;
pub mod history;
pub mod leases;
pub mod limits;
pub mod listing;
pub mod operating;
pub mod sampling;
mod scene;
pub mod settling;
pub mod suspects;
pub mod transactions;
pub mod waiting;

/// How the suite gets a store.
pub trait Fixture: Send + Sync + Sized + 'static {
    /// Makes a store that nobody else uses, with nothing in it. It goes when the fixture is dropped.
    fn open() -> impl Future<Output = Self> + Send;

    /// A handle on the store.
    fn broker(&self) -> Arc<dyn Broker>;

    /// A second handle on the same store, as far from the first as the engine allows: what another process would
    /// have. An engine that lives in one process gives the first again.
    fn other(&self) -> Arc<dyn Broker>;
}

/// Longer than any case takes on a busy machine, and short enough that a hang is seen.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs one case on a fresh store; the tests that [`conformance!`](crate::conformance!) writes call it.
///
/// # Panics
/// When the case fails, or does not end.
pub fn run<F: Fixture>(case: impl AsyncFnOnce(&Scene)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        let fixture = F::open().await;
        let scene = Scene::new(fixture.broker(), fixture.other());
        tokio::time::timeout(PATIENCE, case(&scene))
            .await
            .unwrap_or_else(|_| panic!("the case did not end within {PATIENCE:?}"));
    });
}

/// Every case, once: `each_conformance_case! { [macro to call] arguments }`.
#[doc(hidden)]
#[macro_export]
macro_rules! each_conformance_case {
    ([$($then:tt)*] $($context:tt)*) => {
        $($then)*! {
            $($context)*
            enqueueing {
                a_stored_job_is_what_was_enqueued
                answers_come_in_order
                a_batch_is_stored_whole_or_not_at_all
                an_unknown_queue_is_refused_with_the_nearest_name
                a_missing_queue_is_declared_on_request
                a_payload_over_the_limit_is_refused
                headers_over_their_limits_are_refused
                zero_attempts_are_refused
                damaged_payloads_are_kept_byte_by_byte
                an_idempotent_id_is_stored_once
                an_idempotent_id_is_remembered_after_its_job_is_gone
                an_idempotent_id_twice_in_a_batch_is_stored_once
                delayed_jobs_wait_in_their_room
                a_due_job_is_moved_to_its_queue
                an_instant_in_the_past_means_now
                absurd_delays_do_not_overflow
                promoted_jobs_come_in_the_order_of_their_due_times
            }
            claiming {
                only_registered_workers_claim
                higher_priorities_come_first_and_equals_in_order
                strict_queues_are_emptied_in_order
                shares_are_filled_before_the_rest
                a_claim_respects_its_limit
                a_claim_respects_its_bytes
                nothing_passes_a_job_that_does_not_fit
                a_held_job_is_not_handed_out_again
                a_held_job_shows_its_holder
                a_paused_queue_gives_nothing
                ten_thousand_jobs_come_in_order
            }
            settling {
                done_removes_the_job
                a_failure_is_scheduled_with_its_history
                every_failure_keeps_its_kind_and_text
                the_last_failure_goes_to_the_bin
                a_rejected_job_goes_to_the_bin_at_once
                an_undecodable_job_keeps_its_bytes_in_the_bin
                a_snooze_counts_nothing
                a_parked_job_waits_for_a_worker_that_knows_it
                parked_jobs_are_adopted_in_order_within_the_limit
                an_adopted_job_is_a_job_like_any_other
                a_release_keeps_the_place
                a_release_in_parts_keeps_all_places
                a_claim_may_be_settled_in_parts
                a_verdict_counts_once
                verdicts_of_strangers_change_nothing
                made_up_receipts_change_nothing
                a_long_history_is_bounded
                absurd_retry_delays_do_not_overflow
                a_batch_of_verdicts_is_answered_one_by_one
            }
            leases {
                a_lease_is_renewed
                unknown_workers_have_no_lease
                a_live_worker_keeps_its_jobs
                a_lapsed_worker_loses_its_jobs
                a_lapsed_worker_that_nobody_missed_goes_on
                stale_verdicts_change_nothing
                stale_acknowledgements_say_lost
                a_worker_that_comes_back_starts_with_nothing
                retiring_hands_back_at_once
                an_orderly_stop_counts_nothing
                settled_jobs_are_not_rescued
                a_rescue_may_take_several_rounds
                two_rescuers_count_each_job_once
                a_worker_is_shown_until_it_ends
                tasks_are_remembered
                acknowledged_jobs_run_at_most_once
                an_acknowledged_job_may_end_well
            }
            suspects {
                suspects_come_first_and_alone
                suspects_are_left_on_request
                a_verdict_clears_a_suspect
                a_released_suspect_stays_one
                only_the_culprit_reaches_the_delivery_limit
                a_replayed_culprit_is_no_suspect
                a_delivery_limit_of_one_buries_at_the_first_loss
                suspects_keep_their_order
            }
            limits {
                an_expired_job_is_not_handed_out
                maintenance_expires_waiting_jobs
                a_queue_may_drop_what_expires
                the_time_to_live_of_a_job_goes_before_its_queues
                the_time_to_live_starts_when_the_job_is_due
                a_started_job_does_not_expire
                a_parked_job_expires
                a_full_queue_refuses
                a_full_queue_refuses_a_batch_whole
                a_full_queue_knows_what_it_has
                only_ready_jobs_count_against_the_length
                a_full_queue_drops_its_oldest
                dead_jobs_are_kept_for_ever_by_default
                dead_jobs_are_pruned_after_their_retention
                bad_settings_are_refused
                settings_change_one_by_one
                the_default_queue_exists
            }
            operating {
                waiting_jobs_are_cancelled_in_every_room
                what_is_gone_cannot_be_cancelled
                a_held_job_is_cancelled_through_its_worker
                a_cancelled_job_may_still_succeed
                a_cancelled_job_is_never_given_back
                a_replayed_job_starts_again
                a_replayed_job_may_change_its_queue
                a_replayed_job_does_not_expire_again
                a_replay_goes_by_filter
                impossible_replays_are_refused
                a_purge_leaves_held_jobs_alone
                a_dry_run_names_what_the_act_takes
                an_act_goes_in_steps
                a_fresh_store_is_sound
                figures_follow_every_move
            }
            sampling {
                a_sample_has_the_figures_of_the_store
                a_fresh_sample_is_shared
                of_many_who_ask_all_get_figures
                a_claim_knows_its_time
            }
            history {
                a_finished_job_is_remembered_where_that_is_asked_for
                a_history_ends_with_its_time
            }
            listing {
                filters_narrow_a_listing
                a_queue_is_listed_in_its_order
                pages_have_bounds
                pages_of_every_room_are_complete
                pages_neither_skip_nor_repeat_while_others_write
            }
            transactions {
                a_committed_transaction_settles_its_job
                a_transaction_without_a_commit_changes_nothing
                a_transaction_of_a_lost_job_is_not_committed
                a_transaction_of_a_settled_job_is_not_committed
            }
            waiting {
                a_wait_ends_at_its_limit
                an_enqueue_wakes_who_waits
                an_enqueue_elsewhere_wakes_who_waits
                a_release_wakes_who_waits
                a_rescue_wakes_who_waits
                a_resumed_queue_wakes_who_waits
                a_due_job_wakes_who_waits
                a_job_that_is_there_ends_the_wait
            }
            concurrency {
                two_handles_never_claim_the_same_job
                one_of_many_equal_enqueues_wins
                producers_and_workers_share_a_queue
                a_length_limit_holds_against_many_producers
                twenty_thousand_jobs_survive_a_crash
            }
        }
    };
}

/// Makes a test of every conformance case, on stores of the given [`Fixture`].
///
/// ```ignore
/// celeriac_testkit::conformance!(MyEngineOnDisk);
/// ```
#[macro_export]
macro_rules! conformance {
    ($fixture:ty) => {
        $crate::each_conformance_case! { [$crate::conformance_tests] $fixture; }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:ty; $($module:ident { $($case:ident)* })*) => {
        $(mod $module {
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::conformance::run::<$fixture>($crate::conformance::$module::$case);
                }
            )*
        })*
    };
}

#[cfg(test)]
mod tests {
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

    crate::conformance!(Reference);

    macro_rules! listed {
        ($($module:ident { $($case:ident)* })*) => {
            [$((stringify!($module), include_str!(concat!("conformance/", stringify!($module), ".rs")), vec![$(stringify!($case)),*])),*]
        };
    }

    /// A case that is written and not listed would never run.
    #[test]
    fn every_case_is_listed() {
        for (module, source, listed) in crate::each_conformance_case! { [listed] } {
            let written: Vec<&str> = source
                .lines()
                .filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next())
                .collect();
            assert_eq!(written, listed, "cases of {module}, in the order of the file");
        }
    }
}
