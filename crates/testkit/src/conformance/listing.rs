//! Cases of [`Broker::list`](celeriac_core::Broker::list).

#![expect(clippy::unwrap_used, reason = "a broken expectation is the failure that a case reports")]

use std::collections::BTreeSet;

use celeriac_core::{Filter, JobId, NewJob, PageOptions, Room, Start, Verdict};

use super::scene::{HOURS, Scene, ids, queue_name, reject, task_name};

/// Each part of a filter narrows what is listed, in the room that it names.
pub async fn filters_narrow_a_listing(scene: &Scene) {
    scene.declare(&["media"]).await;
    let worker = scene.worker().await;
    let mut mail = scene.job("default");
    mail.task = task_name("mail");
    let stored = scene.put(vec![mail, scene.job("default"), scene.job("media")]).await;
    let held = scene.claim_from(worker, &["media"], 1).await;
    let list = async |change: &(dyn Fn(&mut Filter) + Sync)| {
        let mut filter = Filter::room(Room::Jobs);
        change(&mut filter);
        let mut listed: Vec<JobId> =
            scene.list_all(&filter, 50).await.iter().map(|details| details.job.id).collect();
        listed.sort_unstable();
        listed
    };
    let mut all = stored.clone();
    all.sort_unstable();
    assert_eq!(list(&|_| ()).await, all, "held jobs too");
    assert_eq!(list(&|f| f.queue = Some(queue_name("media"))).await, stored[2..]);
    assert_eq!(list(&|f| f.task = Some(task_name("mail"))).await, stored[..1]);
    assert_eq!(list(&|f| f.id = Some(stored[1])).await, stored[1..2]);
    assert!(list(&|f| f.older_than = Some(HOURS)).await.is_empty());
    assert!(list(&|f| f.queue = Some(queue_name("nowhere"))).await.is_empty());
    assert!(list(&|f| f.room = Room::Dead).await.is_empty());
    let mut filter = Filter::room(Room::Jobs);
    filter.id = Some(held[0].job.id);
    assert_eq!(scene.list_all(&filter, 50).await[0].held_by.as_deref(), Some("host:1"));
    scene.sound().await;
}

/// The ready jobs of a lane are listed in the order in which they will run; the bin, in the order of its arrivals.
pub async fn a_queue_is_listed_in_its_order(scene: &Scene) {
    let worker = scene.worker().await;
    let mut stored = scene.fill("default", 10).await;
    stored.extend(scene.fill("default", 10).await);
    let listed = scene.list_all(&Filter::room(Room::Jobs), 3).await;
    assert_eq!(listed.iter().map(|details| details.job.id).collect::<Vec<_>>(), stored);
    let held = scene.claim(worker, 4).await;
    let mut buried = Vec::new();
    for place in [2, 0, 3, 1] {
        scene.apply(worker, &held[place], reject("no")).await;
        buried.push(held[place].job.id);
    }
    let listed = scene.list_all(&Filter::room(Room::Dead), 3).await;
    assert_eq!(listed.iter().map(|details| details.job.id).collect::<Vec<_>>(), buried);
    scene.sound().await;
}

/// Sizes out of bounds and places that no page gave are refused.
pub async fn pages_have_bounds(scene: &Scene) {
    scene.fill("default", 3).await;
    for limit in [0, PageOptions::MAX_LIMIT + 1, usize::MAX] {
        let mut page = PageOptions::default();
        page.limit = limit;
        let error = scene.broker.list(Filter::room(Room::Jobs), page).await.unwrap_err();
        assert_eq!(error.code().as_str(), "invalid");
    }
    for room in Room::ALL {
        for place in ["", "x", "'; drop table jobs", "\u{0}", &"9".repeat(300)] {
            let mut page = PageOptions::default();
            page.after = Some(place.to_owned());
            let error = scene.broker.list(Filter::room(room), page).await.unwrap_err();
            assert_eq!(error.code().as_str(), "invalid", "{place:?}");
        }
    }
    let mut page = PageOptions::default();
    page.limit = 3;
    let answer = scene.broker.list(Filter::room(Room::Jobs), page).await.unwrap();
    assert_eq!(answer.jobs.len(), 3);
    scene.sound().await;
}

/// In every room, with pages of every size, each job is listed once.
pub async fn pages_of_every_room_are_complete(scene: &Scene) {
    scene.declare(&["a", "b"]).await;
    let worker = scene.worker().await;
    let mut jobs: Vec<NewJob> = Vec::new();
    for number in 0..60_u8 {
        let mut job = scene.job(["a", "b", "default"][usize::from(number % 3)]);
        job.priority = celeriac_core::Priority::new(number % 10).unwrap();
        if number >= 40 {
            job.start = Start::After(HOURS);
        }
        jobs.push(job);
    }
    scene.put(jobs).await;
    let held = scene.claim_from(worker, &["a", "b", "default"], 30).await;
    for (place, claimed) in held.iter().enumerate() {
        let verdict = match place % 3 {
            0 => Verdict::Park,
            1 => reject("no"),
            _ => continue,
        };
        scene.apply(worker, claimed, verdict).await;
    }
    for (room, count) in [(Room::Jobs, 20), (Room::Scheduled, 20), (Room::Parked, 10), (Room::Dead, 10)] {
        for size in [1, 7, 10, 20, 1_000] {
            let listed = scene.list_all(&Filter::room(room), size).await;
            let distinct: BTreeSet<JobId> = listed.iter().map(|details| details.job.id).collect();
            assert_eq!((listed.len(), distinct.len()), (count, count), "{room} by {size}");
            assert!(listed.iter().all(|details| details.room == room));
        }
    }
    scene.sound().await;
}

/// While jobs come and go between the pages, each job that stayed is seen once, and none twice.
pub async fn pages_neither_skip_nor_repeat_while_others_write(scene: &Scene) {
    let worker = scene.worker().await;
    let stored = scene.fill("default", 60).await;
    let held = scene.claim(worker, 10).await;
    let mut page = PageOptions::default();
    page.limit = 7;
    let mut seen = Vec::new();
    let mut gone = BTreeSet::new();
    for round in 0.. {
        let answer = scene.broker.list(Filter::room(Room::Jobs), page.clone()).await.unwrap();
        seen.extend(answer.jobs.iter().map(|details| details.job.id));
        page.after = answer.next;
        if page.after.is_none() {
            break;
        }
        // One comes, one that is held is done, and one from the far end is cancelled.
        if round < 8 {
            scene.fill("default", 1).await;
            scene.apply(worker, &held[round], Verdict::Done).await;
            gone.insert(held[round].job.id);
            scene.other.cancel(stored[59 - round]).await.unwrap();
            gone.insert(stored[59 - round]);
        }
        assert!(round < 1_000, "the listing does not end");
    }
    let distinct: BTreeSet<JobId> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len(), "no job is listed twice");
    for id in stored.iter().filter(|id| !gone.contains(id)) {
        assert!(distinct.contains(id), "job {id} was there all the time and was not listed");
    }
    assert_eq!(ids(&held).len(), 10);
    scene.sound().await;
}
