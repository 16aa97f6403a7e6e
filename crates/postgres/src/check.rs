use std::collections::BTreeMap;

use celeriac_core::{CheckOptions, CheckReport, Result, Timestamp, Violation};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::broker::PostgresBroker;
use crate::fault::Fault;
use crate::row::{instant, total};
use crate::statement::Statement;

impl PostgresBroker {
    pub(crate) async fn check_store(&self, options: &CheckOptions) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        self.check_rooms(&mut report).await?;
        self.check_places(options, &mut report).await?;
        self.check_claims(options, &mut report).await?;
        self.check_figures(options, &mut report).await?;
        self.note_server(&mut report).await?;
        Ok(report)
    }

    async fn check_rooms(&self, report: &mut CheckReport) -> Result<()> {
        for row in self.store.query_whole("check the store", Statement::CheckDoubles).await? {
            let (id, times): (Uuid, i64) = (row.get(0), row.get(1));
            report
                .violations
                .push(Violation::new("a job is in one room", format!("{id} is stored {times} times")));
        }
        Ok(())
    }

    async fn check_places(&self, options: &CheckOptions, report: &mut CheckReport) -> Result<()> {
        let mut lost: BTreeMap<i32, (Vec<i16>, Vec<i64>)> = BTreeMap::new();
        for row in self.store.query_whole("check the store", Statement::CheckMisplaced).await? {
            let (queue, lane, seq, places): (i32, i16, i64, i32) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            let mut violation = Violation::new(
                "a job of `jobs` is after the cursor, in a hole or in an open claim",
                format!("queue {queue} lane {lane} seq {seq} is in {places} of them"),
            );
            if places == 0 && options.repair {
                violation.repaired = true;
                let (lanes, seqs) = lost.entry(queue).or_default();
                lanes.push(lane);
                seqs.push(seq);
            }
            report.violations.push(violation);
        }
        for (queue, (lanes, seqs)) in lost {
            self.store.query("give back lost jobs", Statement::Reclaim, &[&queue, &lanes, &seqs]).await?;
            self.notifier.wake(&[queue]);
        }
        Ok(())
    }

    async fn check_claims(&self, options: &CheckOptions, report: &mut CheckReport) -> Result<()> {
        for row in self.store.query_whole("check the store", Statement::CheckOrphans).await? {
            let (queue, claim, worker): (i32, i64, Uuid) = (row.get(0), row.get(1), row.get(2));
            let mut violation = Violation::new(
                "a claim's worker is registered",
                format!("claim {claim} of queue {queue} belongs to {worker}"),
            );
            if options.repair {
                let known: Vec<i64> = Vec::new();
                self.store.query("give back lost jobs", Statement::Reconcile, &[&worker, &known]).await?;
                self.notifier.wake(&[queue]);
                violation.repaired = true;
            }
            report.violations.push(violation);
        }
        Ok(())
    }

    async fn check_figures(&self, options: &CheckOptions, report: &mut CheckReport) -> Result<()> {
        let read = async {
            let mut session = self.store.session().await?;
            session.begin_whole().await?;
            let rows = session.query(Statement::CheckCounts, &[]).await?;
            session.commit().await?;
            Ok::<_, Fault>(rows)
        };
        let rows = read.await.map_err(|fault| self.store.error(fault, "check the store"))?;
        for row in rows {
            let figures = Figures::read(&row);
            report.jobs += total(figures.jobs + figures.scheduled.1 + figures.parked.1 + figures.dead.1);
            let mut wrong = Vec::new();
            for (what, (figure, counted)) in
                [("scheduled", figures.scheduled), ("parked", figures.parked), ("dead", figures.dead)]
            {
                if figure != counted {
                    wrong.push(format!("{what}: {figure} by the figures, {counted} counted"));
                }
            }
            if figures.held.0 != figures.held.1 {
                wrong.push(format!("held: {} by the figures, {} counted", figures.held.0, figures.held.1));
            }
            let drift = figures.ready.0 - figures.ready.1;
            if drift < 0 {
                wrong.push(format!("ready: {} by the figures, {} counted", figures.ready.0, figures.ready.1));
            } else if drift > 0 {
                report.notes.push(format!(
                    "queue {}: {drift} jobs are counted that were rolled back, or are not committed yet",
                    figures.name
                ));
            }
            let repair = options.repair && (drift != 0 || !wrong.is_empty());
            if repair {
                self.store
                    .query(
                        "correct the figures",
                        Statement::CountCorrection,
                        &[
                            &figures.queue,
                            &narrow(drift),
                            &narrow(figures.held.0 - figures.held.1),
                            &narrow(figures.scheduled.1 - figures.scheduled.0),
                            &narrow(figures.parked.1 - figures.parked.0),
                            &narrow(figures.dead.1 - figures.dead.0),
                        ],
                    )
                    .await?;
            }
            if !wrong.is_empty() {
                let mut violation = Violation::new(
                    "figures agree with the jobs",
                    format!("queue {}: {}", figures.name, wrong.join("; ")),
                );
                violation.repaired = repair;
                report.violations.push(violation);
            }
        }
        Ok(())
    }

    /// The store's clock.
    pub(crate) async fn store_now(&self) -> Result<Timestamp> {
        let rows = self.store.query("read the clock", Statement::Now, &[]).await?;
        Ok(rows.first().map_or(Timestamp::from_micros(0), |row| instant(row.get(0))))
    }
}

/// Pairs of a figure and the count that it must equal.
struct Figures {
    queue: i32,
    name: String,
    jobs: i64,
    ready: (i64, i64),
    held: (i64, i64),
    scheduled: (i64, i64),
    parked: (i64, i64),
    dead: (i64, i64),
}

impl Figures {
    fn read(row: &Row) -> Self {
        let number = |at: usize| row.get::<_, i64>(at);
        let (jobs, ready) = (number(13), number(18));
        Self {
            name: row.get(0),
            queue: row.get(17),
            jobs,
            ready: (number(1) - number(2) - number(5), ready),
            held: (number(2) - number(6), jobs - ready),
            scheduled: (number(10), number(14)),
            parked: (number(11), number(15)),
            dead: (number(12), number(16)),
        }
    }
}

fn narrow(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}
