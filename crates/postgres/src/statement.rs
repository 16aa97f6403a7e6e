use tokio_postgres::types::Type;

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident($($type:ident),*) = $text:literal;)*) => {
        /// Every statement that the engine sends, constant but for the schema's name: the cache of prepared statements
        /// grows to their number and no further.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Statement {
            $($(#[$doc])* $name,)*
        }

        impl Statement {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The texts in the order of the variants; `@.` stands for the schema.
            pub(crate) const TEXTS: &'static [&'static str] = &[$($text,)*];

            /// The types of the parameters.
            pub(crate) fn types(self) -> &'static [Type] {
                match self {
                    $(Self::$name => {
                        static TYPES: &[Type] = &[$(Type::$type),*];
                        TYPES
                    })*
                }
            }
        }
    };
}

statements! {
    Acknowledge(UUID, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY) = "select @.acknowledge($1, $2, $3, $4, $5)";
    Adopt(UUID, INT4, INT8, TEXT_ARRAY) = "select claim, queue, lane, seq, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, extras from @.adopt($1, $2, $3, $4)";
    Begin() = "begin isolation level read committed";
    BeginSnapshot() = "begin isolation level repeatable read read only";
    BuryWorker(UUID) = "select @.bury_worker($1)";
    Cancel(UUID) = "select @.cancel($1)";
    CancellationsOf(UUID) = "select @.cancellations_of($1)";
    CheckCounts() = "select q.name, @.admitted(q.id), coalesce(s.taken, 0), f.deferred, f.readmitted, f.removed, f.settled, f.done, f.cancelled, f.dropped, f.scheduled, f.parked, f.dead, (select count(*) from @.jobs j where j.queue = q.id), (select count(*) from @.scheduled y where y.queue = q.id), (select count(*) from @.parked y where y.queue = q.id), (select count(*) from @.dead y where y.queue = q.id), q.id, @.ready_count(q.id) from @.queues q join @.figures f on f.queue = q.id left join lateral (select c.taken from @.claims c where c.queue = q.id order by c.claim desc limit 1) s on true order by q.id";
    CheckDoubles() = "select x.id, count(*) from (select id from @.jobs union all select id from @.scheduled union all select id from @.parked union all select id from @.dead) x group by x.id having count(*) > 1 limit 100";
    CheckOrphans() = "select c.queue, c.claim, c.worker from @.claims c where not c.closed and c.took_lane <> '{}' and not exists (select 1 from @.workers w where w.id = c.worker) order by c.queue, c.claim limit 100";
    CheckMisplaced() = "select queue, lane, seq, places from @.misplaced(1000)";
    Claim(UUID, INT4_ARRAY, INT4_ARRAY, INT4, INT8, BOOL, TEXT_ARRAY, BOOL) = "select claim, queue, lane, seq, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, extras from @.claim($1, $2, $3, $4, $5, $6, $7, $8)";
    Commit() = "commit";
    CountCorrection(INT4, INT4, INT4, INT4, INT4, INT4) = "insert into @.tally (queue, removed, settled, scheduled, parked, dead) values ($1, $2, $3, $4, $5, $6)";
    DeclareQueue(TEXT) = "select queue, created from @.declare_queue($1)";
    Duties(INT4) = "select promoted, more, woken, next_due, dead_workers, lost, labels, pruned, expired from @.duties($1)";
    DeadRows(TEXT) = "select relname::text, n_dead_tup, n_live_tup, pg_total_relation_size(relid), extract(epoch from clock_timestamp() - greatest(last_vacuum, last_autovacuum))::bigint from pg_stat_user_tables where schemaname = $1 order by n_dead_tup desc limit 5";
    EnqueueAll(INT4_ARRAY, INT2_ARRAY, UUID_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BOOL_ARRAY) = "select fresh, crowded from @.enqueue_all($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    EnqueueNow(INT4, INT2, UUID_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY) = "select @.enqueue_now($1, $2, $3, $4, $5, $6, $7)";
    Find(UUID) = "select e.room, e.n, e.queue, e.since, e.waits_for, e.reason, e.id, e.task, e.payload, e.attempt, e.deliveries, e.priority, e.enqueued_at, e.due_at, e.expires_at, e.extras, case when e.room = 'jobs' then (select w.label from @.workers w where w.id = @.holder(e.queue, e.lane, e.seq)) end from @.everything e where e.id = $1 limit 1";
    /// Sessions, prepared transactions, slots and replicas, and how old what each of them still wants to see is.
    Finished(UUID) = "select queue, worker, at from @.finished($1)";
    HeldBack() = "select x.kind, x.name, x.detail, x.seconds, x.transactions from (select 'session' as kind, a.pid::text as name, format('role %s, application %s, from %s, %s', a.usename, coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(host(a.client_addr), 'this machine'), a.state) as detail, extract(epoch from clock_timestamp() - a.xact_start)::bigint as seconds, greatest(age(a.backend_xmin), age(a.backend_xid))::bigint as transactions from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid() and (a.backend_xmin is not null or a.backend_xid is not null) union all select 'slot', s.slot_name::text, format('%s, %s', s.slot_type, case when s.active then 'in use' else 'not in use' end), null, greatest(age(s.xmin), age(s.catalog_xmin))::bigint from pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null union all select 'prepared', p.gid, format('role %s', p.owner), extract(epoch from clock_timestamp() - p.prepared)::bigint, age(p.transaction)::bigint from pg_prepared_xacts p where p.database = current_database() union all select 'replica', coalesce(nullif(r.application_name, ''), r.pid::text), coalesce(host(r.client_addr), 'this machine'), null, age(r.backend_xmin)::bigint from pg_stat_replication r where r.backend_xmin is not null) x order by x.transactions desc nulls last limit 20";
    ListJobs(INT4_ARRAY, INT2_ARRAY, INT8_ARRAY, TEXT, UUID, INT8, BOOL, INT4) = "select queue, lane, seq, id, task, payload, attempt, deliveries, priority, enqueued_at, due_at, expires_at, extras, held_by from @.list_jobs($1, $2, $3, $4, $5, $6, $7, $8)";
    ListRoom(TEXT, INT8, INT4, TEXT, UUID, TEXT, INT8, INT4) = "select e.room, e.n, e.queue, e.since, e.waits_for, e.reason, e.id, e.task, e.payload, e.attempt, e.deliveries, e.priority, e.enqueued_at, e.due_at, e.expires_at, e.extras, null::text from @.everything e where e.room = $1 and e.n > $2 and ($3 is null or e.queue = $3) and ($4 is null or e.task = $4) and ($5 is null or e.id = $5) and ($6 is null or e.reason = $6) and ($7 is null or e.since < clock_timestamp() - $7 * interval '1 microsecond') order by e.n limit $8";
    Look(INT4_ARRAY, BOOL) = "select @.look($1, $2)";
    LostJobs(UUID, INT4) = "select queue, claim, lane, seq, deliveries, extras, acknowledged, cancelled, delivery_limit, stamp from @.lost_jobs($1, $2)";
    Now() = "select clock_timestamp()";
    Peek(UUID, INT4_ARRAY, INT2_ARRAY, INT8_ARRAY) = "select place, attempt, extras, cancelled, acknowledged, label, stamp from @.peek($1, $2, $3, $4)";
    ParkedCounts() = "select waits_for, jobs from @.parked_counts order by waits_for";
    OldestProgram() = "select oldest from @.migrations order by version desc limit 1";
    PatrolBegin() = "select granted, wait from @.patrol_begin()";
    PatrolEnd(INT8, INT8) = "select @.patrol_end($1, $2)";
    PatrolStep(INT4, INT2, INT8, INT4) = "select reached, looked, lost from @.patrol_step($1, $2, $3, $4)";
    Pull(INT4, INT2_ARRAY, INT8_ARRAY, TEXT) = "select @.pull($1, $2, $3, $4)";
    Promote(INT4) = "select moved, more, woken, next_due from @.promote($1)";
    Purge(TEXT, INT8_ARRAY) = "select @.purge($1, $2)";
    QueueNumbers() = "select id, name from @.queues";
    QueueSettings(INT4) = "select name, delivery_limit, ttl, drop_expired, max_length, drop_oldest, dead_retention, paused, history from @.queues where id = $1 for update";
    QueueStats() = "select q.name, q.delivery_limit, q.ttl, q.drop_expired, q.max_length, q.drop_oldest, q.dead_retention, q.paused, s.ready, s.held, s.scheduled, s.parked, s.dead, s.oldest, s.enqueued, s.done, s.retried, s.buried, s.redelivered, s.cancelled, s.dropped, s.stamp, q.history from @.queue_stats() s join @.queues q on q.id = s.id order by q.name";
    Reclaim(INT4, INT2_ARRAY, INT8_ARRAY) = "select @.reclaim($1, $2, $3)";
    Reconcile(UUID, INT8_ARRAY) = "select @.reconcile($1, $2)";
    Register(UUID, TEXT, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8, INT8) = "select @.register($1, $2, $3, $4, $5, $6, $7)";
    Renew(UUID, INT8) = "select @.renew($1, $2)";
    Replicas() = "select coalesce(nullif(application_name, ''), pid::text), coalesce(sync_state, '') from pg_stat_replication order by 1 limit 20";
    Replay(INT8_ARRAY, BYTEA_ARRAY, INT4) = "select @.replay($1, $2, $3)";
    Rescue(UUID, INT4, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BYTEA_ARRAY, TEXT_ARRAY) = "select redelivered, buried from @.rescue($1, $2, $3, $4, $5, $6, $7)";
    RetireWorker(UUID) = "update @.workers set dead = true where id = $1 returning label";
    ServerFacts() = "select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), pg_is_in_recovery(), pg_has_role(current_user, 'pg_read_all_stats', 'usage'), current_setting('autovacuum')";
    Sample() = "select body, clock_timestamp() from @.samples where name = 'store'";
    SampleKeep(TEXT) = "update @.samples set body = $1 where name = 'store'";
    SampleStorage() = "select relation, bytes, dead_rows, oldest_snapshot, connections, max_connections from @.storage_figures()";
    SampleTurn(INT8) = "update @.samples set turn_at = clock_timestamp() where name = 'store' and turn_at <= clock_timestamp() - $1 * interval '1 microsecond' returning body, turn_at";
    Settle(UUID, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, BOOL_ARRAY, INT4_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT4_ARRAY, INT8_ARRAY, TIMESTAMPTZ) = "select @.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    SettleIn(UUID, INT4, INT8, INT2, INT8, TEXT, INT4_ARRAY, INT8_ARRAY) = "select @.settle_in($1, $2, $3, $4, $5, $6, $7, $8)";
    SettleDone(UUID, INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT2_ARRAY, INT8_ARRAY, INT4_ARRAY, INT8_ARRAY) = "select @.settle_done($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    Tasks() = "select info from @.tasks order by name";
    TransactionStates(TEXT_ARRAY) = "select u.x, pg_xact_status(u.x::xid8) from unnest($1) as u(x)";
    Trim(INT4) = "select @.trim($1)";
    UpdateQueue(INT4, INT8, INT8, BOOL, INT8, BOOL, INT8, BOOL, INT8) = "update @.queues set delivery_limit = $2, ttl = $3, drop_expired = $4, max_length = $5, drop_oldest = $6, dead_retention = $7, paused = $8, history = $9 where id = $1";
    Wake(TEXT) = "select @.wake($1)";
    Workers() = "select id, label, queues, tasks, concurrency, started_at, greatest(0, extract(epoch from lease_until - clock_timestamp()) * 1000000)::bigint from @.workers order by label, id";
    XactId() = "select pg_current_xact_id()::text";
}

/// The class of the store's advisory locks: tenants and the user's own locks never meet. FNV-1a of the schema's name.
pub(crate) fn lock_class(schema: &str) -> i32 {
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = "celeriac:".bytes().chain(schema.bytes()).fold(0x811c_9dc5, hash);
    i32::from_ne_bytes(hash.to_ne_bytes())
}

/// The channel of the store's notifications.
pub(crate) fn channel(schema: &str) -> String {
    format!("celeriac:{schema}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All instants are the server's: the only ones that are sent are the one that a user named for a job, and the one that
    /// the server gave a moment before (`peek`). A process whose clock is wrong has no way to say so.
    #[test]
    fn no_statement_takes_the_time_of_this_process() {
        for statement in Statement::ALL {
            let times = statement
                .types()
                .iter()
                .filter(|ty| [Type::TIMESTAMPTZ, Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMP].contains(ty))
                .count();
            let expected = usize::from(matches!(statement, Statement::EnqueueAll | Statement::Settle));
            assert_eq!(times, expected, "{statement:?}");
        }
    }

    #[test]
    fn every_parameter_has_a_type() {
        for (text, statement) in Statement::TEXTS.iter().zip(Statement::ALL) {
            let parameters = (1..20).take_while(|n| text.contains(&format!("${n}"))).count();
            assert_eq!(statement.types().len(), parameters, "{text}");
        }
    }
}
