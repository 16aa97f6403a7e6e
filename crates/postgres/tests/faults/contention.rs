//! Neighbours that hold locks, collide, or stay open.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use celeriac_core::{
    Broker, CheckOptions, ClaimOptions, EnqueueOptions, JobId, NewJob, QueueChange, QueueName, Settlement,
    Verdict,
};
use celeriac_testkit::postgres::fresh_url;
use tokio::time::timeout;

use crate::load::{PATIENCE, connect, new_job, open, register};

/// A transaction of a user that enqueued and stays open: the jobs around it flow, its own come right after its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_long_transaction_of_a_user_holds_nobody_up() {
    let url = fresh_url().unwrap();
    let broker = open(&url, "15s").await;
    let worker = register(&broker, PATIENCE).await;
    let mut client = connect(&url).await;
    let transaction = client.transaction().await.unwrap();
    let late: Vec<NewJob> = (0..3).map(|_| new_job()).collect();
    let late_ids: HashSet<JobId> = late.iter().map(|job| job.id).collect();
    broker.enqueue_in(&transaction, late, EnqueueOptions::default()).await.unwrap();
    let take = async || {
        let claimed =
            broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 10)).await.unwrap();
        let verdicts =
            claimed.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
        broker.settle(worker, verdicts).await.unwrap();
        claimed.iter().map(|job| job.job.id).collect::<HashSet<JobId>>()
    };
    for _ in 0..50 {
        let job = new_job();
        let id = job.id;
        broker.enqueue(vec![job], EnqueueOptions::default()).await.unwrap();
        assert_eq!(take().await, HashSet::from([id]));
    }
    assert!(take().await.is_empty());
    let waiting = {
        let broker = Arc::clone(&broker);
        tokio::spawn(async move {
            broker
                .wait(celeriac_core::WaitOptions::new([QueueName::default_queue()], PATIENCE))
                .await
                .unwrap();
        })
    };
    transaction.commit().await.unwrap();
    timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    assert_eq!(take().await, late_ids);
    // A rolled back one leaves nothing, and what stood for it is forgotten.
    let transaction = client.transaction().await.unwrap();
    broker.enqueue_in(&transaction, vec![new_job()], EnqueueOptions::default()).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(take().await.is_empty());
    let report = broker.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

/// A statement that the server undid for its neighbours is sent again, and only so often.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn collisions_are_tried_again() {
    let url = fresh_url().unwrap();
    let schema = url.split("schema=").nth(1).unwrap().to_owned();
    let broker = open(&url, "15s").await;
    let client = connect(&url).await;
    for (code, fails, passes) in [("40001", 3, true), ("40P01", 3, true), ("40001", 1_000, false)] {
        // A sequence keeps its count when the statement is undone.
        let trap = format!(
            "drop sequence if exists {schema}.tries; create sequence {schema}.tries;
             create or replace function {schema}.trap() returns trigger language plpgsql as $$ begin
               if nextval('{schema}.tries') <= {fails} then raise exception using errcode = '{code}'; end if;
               return new;
             end $$;
             create or replace trigger trap before insert on {schema}.jobs for each row execute function {schema}.trap()"
        );
        client.batch_execute(&trap).await.unwrap();
        let answer = broker.enqueue(vec![new_job()], EnqueueOptions::default()).await;
        match answer {
            Ok(_) => assert!(passes, "{code} {fails} times"),
            Err(error) => {
                assert!(!passes && error.is_transient(), "{code} {fails} times: {}", error.full());
            }
        }
    }
    client.batch_execute(&format!("drop trigger trap on {schema}.jobs")).await.unwrap();
    assert_eq!(broker.check(CheckOptions::default()).await.unwrap().jobs, 2);
}

/// Two transactions of users fill two crowded queues in opposite orders: the server ends one, which is told so, and what
/// the other stored is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadlock_of_two_producers_ends_one_of_them() {
    let url = fresh_url().unwrap();
    let broker = open(&url, "15s").await;
    let queues = ["left", "right"].map(|name| QueueName::new(name).unwrap());
    for queue in &queues {
        let mut change = QueueChange::default();
        // From half the limit on producers take turns.
        change.max_length = Some(Some(2));
        broker.declare(queue.clone(), change).await.unwrap();
    }
    let meet = Arc::new(tokio::sync::Barrier::new(2));
    let run = async |first: usize| {
        let mut client = connect(&url).await;
        let transaction = client.transaction().await.unwrap();
        for (step, place) in [first, 1 - first].into_iter().enumerate() {
            let mut jobs = vec![new_job(), new_job()];
            jobs.iter_mut().for_each(|job| job.queue = queues[place].clone());
            let answer = broker.enqueue_in(&transaction, jobs, EnqueueOptions::default()).await;
            if step == 0 {
                answer.unwrap();
                meet.wait().await;
            } else if let Err(error) = answer {
                transaction.rollback().await.unwrap();
                return Err(error);
            }
        }
        transaction.commit().await.unwrap();
        Ok(())
    };
    let (one, other) = timeout(PATIENCE, async { tokio::join!(run(0), run(1)) }).await.unwrap();
    let failed: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].is_transient() && failed[0].full().contains("40P01"), "{}", failed[0].full());
    assert_eq!(broker.check(CheckOptions::default()).await.unwrap().jobs, 4);
}
