//! What may happen in a history.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::{option, prop_oneof};

/// The queues of every history.
pub(super) const QUEUES: [&str; 3] = ["default", "side", "narrow"];

/// How many workers there are at any time.
pub(super) const WORKERS: usize = 3;

/// One step. Numbers that pick something are taken modulo what there is.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Acknowledge {
        worker: usize,
        picks: Vec<usize>,
    },
    Bulk {
        room: usize,
        queue: Option<usize>,
        act: Act,
        limit: usize,
    },
    Cancel {
        job: usize,
    },
    Claim {
        worker: usize,
        first: usize,
        shares: [usize; 3],
        limit: usize,
        bytes: Option<usize>,
        suspects: bool,
        tasks: bool,
    },
    Declare {
        queue: usize,
        setting: Setting,
    },
    Enqueue {
        queue: usize,
        priority: u8,
        count: usize,
        start: Start,
    },
    Lapse {
        worker: usize,
    },
    Maintain,
    Repeat {
        job: usize,
        beside: usize,
    },
    Retire {
        worker: usize,
    },
    Settle {
        worker: usize,
        picks: Vec<(usize, Word)>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Look,
    Purge,
    Replay,
    ReplayInto(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    DeliveryLimit(u32),
    DropExpired(bool),
    Length(Option<u64>),
    Pause(bool),
    Retention(bool),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    Later,
    /// With a time to live of zero: it expires before anybody can take it.
    Mortal,
    Now,
    /// Remembered, so that a later step can repeat it.
    Remembered,
}

/// A verdict.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Cancel,
    Done,
    Exhausted,
    Park,
    Reject,
    Release,
    RetryLater,
    RetryNow,
    SnoozeLater,
    SnoozeNow,
    Undecodable,
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let worker = || 0..WORKERS;
    let queue = || 0..QUEUES.len();
    let shares = [0_usize..6, 0..6, 0..6];
    let claim = (
        worker(),
        queue(),
        shares,
        0_usize..10,
        option::weighted(0.2, 1_usize..60),
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        7 => (queue(), prop_oneof![3 => 0_u8..1, 1 => 1_u8..10], 1_usize..7, any_start())
            .prop_map(|(queue, priority, count, start)| Step::Enqueue { queue, priority, count, start }),
        1 => (0_usize..200, 0_usize..3).prop_map(|(job, beside)| Step::Repeat { job, beside }),
        10 => claim.prop_map(|(worker, first, shares, limit, bytes, suspects, tasks)| {
            Step::Claim { worker, first, shares, limit, bytes, suspects, tasks }
        }),
        12 => (worker(), vec((0_usize..30, any_word()), 1..8))
            .prop_map(|(worker, picks)| Step::Settle { worker, picks }),
        2 => (worker(), vec(0_usize..30, 1..4)).prop_map(|(worker, picks)| Step::Acknowledge { worker, picks }),
        2 => worker().prop_map(|worker| Step::Retire { worker }),
        2 => worker().prop_map(|worker| Step::Lapse { worker }),
        2 => Just(Step::Maintain),
        3 => (0_usize..200).prop_map(|job| Step::Cancel { job }),
        2 => (0_usize..4, option::of(queue()), any_act(), 1_usize..6)
            .prop_map(|(room, queue, act, limit)| Step::Bulk { room, queue, act, limit }),
        2 => (queue(), any_setting()).prop_map(|(queue, setting)| Step::Declare { queue, setting }),
    ]
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Look),
        Just(Act::Purge),
        Just(Act::Replay),
        (0..QUEUES.len()).prop_map(Act::ReplayInto)
    ]
}

fn any_setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        (1_u32..5).prop_map(Setting::DeliveryLimit),
        any::<bool>().prop_map(Setting::DropExpired),
        option::of(1_u64..12).prop_map(Setting::Length),
        prop_oneof![1 => Just(true), 2 => Just(false)].prop_map(Setting::Pause),
        prop_oneof![1 => Just(true), 2 => Just(false)].prop_map(Setting::Retention),
    ]
}

fn any_start() -> impl Strategy<Value = Start> {
    prop_oneof![8 => Just(Start::Now), 1 => Just(Start::Later), 1 => Just(Start::Mortal), 1 => Just(Start::Remembered)]
}

fn any_word() -> impl Strategy<Value = Word> {
    prop_oneof![
        4 => Just(Word::Done),
        4 => Just(Word::Release),
        2 => Just(Word::RetryNow),
        1 => Just(Word::RetryLater),
        1 => Just(Word::SnoozeNow),
        1 => Just(Word::SnoozeLater),
        2 => Just(Word::Park),
        1 => Just(Word::Reject),
        1 => Just(Word::Exhausted),
        1 => Just(Word::Undecodable),
        1 => Just(Word::Cancel),
    ]
}
