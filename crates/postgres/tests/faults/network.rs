//! Networks that cut, hold up and break off.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use celeriac_core::{
    Broker, CheckOptions, ClaimOptions, EnqueueOptions, JobId, MaintainOptions, NewJob, QueueName, Renewal,
    Settled, Settlement, Verdict,
};
use celeriac_testkit::postgres::{TestServer, fresh_schema};
use celeriac_testkit::{FaultProxy, Weather};
use tokio::time::{sleep, timeout};

use crate::load::{PATIENCE, new_job, open, register};

/// The network is gone for longer than the lease, then back: the worker learns it, its late verdicts change nothing, and
/// its jobs are done by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cut_longer_than_the_lease_costs_the_jobs_not_the_order() {
    let server = TestServer::shared().unwrap();
    let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let schema = fresh_schema();
    let healthy = open(&format!("{}?schema={schema}", server.url()), "15s").await;
    let cut_off = open(&format!("{}?schema={schema}", server.url_at(proxy.port())), "2s").await;
    let lease = Duration::from_secs(1);
    let worker = register(&cut_off, lease).await;
    let ids: HashSet<JobId> = {
        let jobs: Vec<NewJob> = (0..50).map(|_| new_job()).collect();
        let ids = jobs.iter().map(|job| job.id).collect();
        cut_off.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
        ids
    };
    let held = cut_off.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 30)).await.unwrap();
    assert_eq!(held.len(), 30);
    for weather in [Weather::Silent, Weather::Cut] {
        proxy.set(weather);
        let error = timeout(PATIENCE, cut_off.renew(worker, lease)).await.unwrap().unwrap_err();
        assert!(error.is_transient(), "{}", error.full());
    }
    let mut lost = 0;
    let dead = async {
        while lost < 30 {
            lost += healthy.maintain(MaintainOptions::default()).await.unwrap().redelivered;
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dead).await.unwrap();
    proxy.set(Weather::Clear);
    let renewal = async {
        loop {
            match cut_off.renew(worker, lease).await {
                Ok(renewal) => return renewal,
                Err(error) => assert!(error.is_transient(), "{}", error.full()),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, renewal).await.unwrap(), Renewal::Lost);
    let late = held.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
    let answers = cut_off.settle(worker, late).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Settled::Stale));
    let second = register(&healthy, PATIENCE).await;
    let mut done = HashSet::new();
    while done.len() < ids.len() {
        let claimed =
            healthy.claim(ClaimOptions::new(second, [QueueName::default_queue()], 20)).await.unwrap();
        assert!(!claimed.is_empty(), "{} of {} jobs came", done.len(), ids.len());
        let verdicts: Vec<Settlement> =
            claimed.iter().map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done }).collect();
        let answers = healthy.settle(second, verdicts).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Settled::Applied));
        done.extend(claimed.iter().map(|job| job.job.id));
    }
    assert_eq!(done, ids);
    let report = healthy.check(CheckOptions::default()).await.unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

/// Answers that break off in the middle of a message: what was claimed unheard of is given back, and all jobs come.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_that_break_off_hide_no_job() {
    let server = TestServer::shared().unwrap();
    let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
    let schema = fresh_schema();
    let healthy = open(&format!("{}?schema={schema}", server.url()), "15s").await;
    let broker = open(&format!("{}?schema={schema}&pool_size=1", server.url_at(proxy.port())), "5s").await;
    let worker = register(&broker, Duration::from_secs(3600)).await;
    let jobs: Vec<NewJob> = (0..400).map(|_| new_job()).collect();
    healthy.enqueue(jobs, EnqueueOptions::default()).await.unwrap();
    let mut done = 0;
    let mut broken = 0;
    let started = Instant::now();
    while done < 400 {
        assert!(started.elapsed() < PATIENCE, "{done} of 400 jobs came, {broken} answers broke off");
        // Far enough for a connection and a statement to be made, short of the whole answer.
        proxy.set(if broken < 3 { Weather::ResetAfter(6_000) } else { Weather::Clear });
        match broker.claim(ClaimOptions::new(worker, [QueueName::default_queue()], 100)).await {
            Ok(claimed) => {
                let verdicts: Vec<Settlement> = claimed
                    .iter()
                    .map(|job| Settlement { receipt: job.receipt, verdict: Verdict::Done })
                    .collect();
                proxy.set(Weather::Clear);
                let settled = healthy.settle(worker, verdicts).await.unwrap();
                done += settled.iter().filter(|answer| **answer == Settled::Applied).count();
            }
            Err(error) => {
                assert!(error.is_transient(), "{}", error.full());
                broken += 1;
            }
        }
    }
    assert_eq!(broken, 3);
}
