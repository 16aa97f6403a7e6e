-- Announces a worker.
create function @.register(w uuid, worker_label text, worker_queues text[], worker_tasks text[], infos text[], handlers bigint, lease bigint) returns void
language plpgsql as $$
declare stamp timestamptz := clock_timestamp();
begin
  insert into @.workers (id, label, queues, tasks, concurrency, started_at, lease_until)
    values (w, worker_label, worker_queues, worker_tasks, handlers, stamp, stamp + lease * interval '1 microsecond')
    on conflict (id) do update set label = excluded.label, queues = excluded.queues, tasks = excluded.tasks, concurrency = excluded.concurrency,
      lease_until = excluded.lease_until, dead = false;
  insert into @.tasks (name, info) select u.name, u.info from unnest(worker_tasks, infos) as u(name, info) order by u.name
    on conflict (name) do update set info = excluded.info where tasks.info <> excluded.info;
end $$;

create function @.renew(w uuid, lease bigint) returns boolean language plpgsql as $$
begin
  -- Lost in a crash of the server it is renewed again, so it need not wait for the disk.
  perform set_config('synchronous_commit', 'off', true);
  update @.workers x set lease_until = clock_timestamp() + lease * interval '1 microsecond' where x.id = w and not x.dead;
  return found;
end $$;

-- The held jobs of a worker whose end was asked for.
create function @.cancellations_of(w uuid) returns setof uuid language plpgsql @pinned as $$
begin
  if not exists (select 1 from @.cancellations limit 1) then return; end if;
  return query select j.id from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi),
      lateral (select y.id, y.lane, y.seq, y.deliveries, y.extras, y.queue from @.jobs y where y.queue = k.queue and y.lane = t.lane and y.seq >= t.lo and y.seq <= t.hi offset 0) j
    where k.worker = w and not k.closed
      and exists (select 1 from @.cancellations c where c.id = j.id);
end $$;

-- Whether somebody could claim something: what `claim` looks at first.
create function @.look(qs int[], suspects boolean) returns boolean language plpgsql @pinned as $$
begin
  return exists (
    select 1 from unnest(qs) as u(q), lateral (select 1 from @.queues x where x.id = u.q and not x.paused limit 1) x
      left join lateral (select c.cursor, c.hole_lane, c.hole_lo, c.hole_hi from @.claims c where c.queue = u.q order by c.claim desc limit 1) k on true
    where exists (select 1 from unnest('{10,9,8,7,6,5,4,3,2,1,0}'::smallint[]) as v(lane),
        lateral (select 1 from @.jobs y where y.queue = u.q and y.lane = v.lane and y.seq > coalesce(k.cursor[v.lane + 1], 0) limit 1) one
        where suspects or v.lane <> 10)
      or exists (select 1 from unnest(k.hole_lane, k.hole_lo, k.hole_hi) as h(lane, lo, hi),
        lateral (select 1 from @.jobs y where y.queue = u.q and y.lane = h.lane and y.seq >= h.lo and y.seq <= h.hi limit 1) one
        where suspects or h.lane <> 10));
end $$;

-- Moves the mark of a duty as far as it can; gives where the duty must begin. `reached` is where it has come now.
create function @.mark(duty text, reached bigint) returns bigint language plpgsql as $$
declare m @.marks; xmin_now xid8 := pg_snapshot_xmin(pg_current_snapshot());
begin
  select * into m from @.marks k where k.name = duty for update;
  if not found then
    insert into @.marks (name, mark, next, bound) values (duty, 0, reached, pg_current_xact_id());
    return 0;
  end if;
  if m.bound <= xmin_now then
    update @.marks k set mark = k.next, next = reached, bound = pg_current_xact_id() where k.name = duty returning k.mark into m.mark;
  end if;
  return m.mark;
end $$;

-- Moves due jobs to their queues. Gives the queues that got some.
create function @.promote(most int, out moved int, out more boolean, out woken int[], out next_due bigint) language plpgsql @pinned as $$
declare start timestamptz; stamp timestamptz;
begin
  moved := 0; more := false; woken := '{}';
  perform @.require_read_committed();
  if pg_try_advisory_xact_lock(@class, -2) then
    stamp := clock_timestamp();
    perform @.mark('promote', (extract(epoch from stamp) * 1000000)::bigint);
    -- A clock that was set back far leaves due jobs behind the mark: now and then all are looked at.
    start := case when random() < 0.005 then '-infinity' else @.due_from() end;
    perform pg_current_xact_id();
    with due as materialized (select y.n from @.scheduled y where y.due_at >= start and y.due_at <= stamp order by y.due_at, y.n limit most),
    gone as materialized (delete from @.scheduled y where y.n = any (array(select d.n from due d))
      returning y.n, y.queue, y.priority, y.attempt, y.deliveries, y.id, y.enqueued_at, y.due_at, y.expires_at, y.task, y.payload, y.extras),
    groups as materialized (select g.queue, g.priority, g.size, nextval(@.lane_sequence(g.queue, g.priority)) << 16 as base
      from (select queue, priority, count(*) as size from gone group by queue, priority) g),
    entered as (insert into @.jobs (queue, lane, seq, attempt, deliveries, id, enqueued_at, due_at, expires_at, task, payload, extras)
      select o.queue, o.priority, g.base + row_number() over (partition by o.queue, o.priority order by o.due_at, o.n) - 1, nullif(o.attempt, 0),
        nullif(o.deliveries, 0), o.id, o.enqueued_at, o.due_at, o.expires_at, o.task, o.payload, o.extras
      from gone o, groups g where g.queue = o.queue and g.priority = o.priority returning queue),
    counted as (insert into @.tally (queue, readmitted, scheduled) select e.queue, count(*), -count(*) from entered e group by e.queue returning queue, readmitted)
    select coalesce(sum(c.readmitted), 0), coalesce(array_agg(c.queue), '{}') into moved, woken from counted c where @.admit(c.queue, c.readmitted) is not null;
    more := moved >= most;
  else
    start := @.due_from();
  end if;
  select greatest(0, extract(epoch from y.due_at - clock_timestamp()) * 1000000)::bigint into next_due from @.scheduled y where y.due_at >= start
    order by y.due_at limit 1;
end $$;

-- Declares workers dead whose lease has lapsed. Gives all whose jobs must be taken back.
create function @.find_dead() returns table (id uuid, label text, fresh boolean) language plpgsql as $$
#variable_conflict use_column
begin
  return query with found as (update @.workers x set dead = true where not x.dead and x.lease_until <= clock_timestamp() returning x.id, x.label)
    select f.id, f.label, true from found f union all select x.id, x.label, false from @.workers x where x.dead;
end $$;

-- What a lost worker held, with what decides about it.
create function @.lost_jobs(w uuid, most int) returns table (queue int, claim bigint, lane smallint, seq bigint, deliveries int, extras bytea, acknowledged boolean,
  cancelled boolean, delivery_limit bigint, stamp timestamptz) language plpgsql @pinned as $$
#variable_conflict use_column
begin
  return query select k.queue, k.claim, j.lane, j.seq, coalesce(j.deliveries, 0), j.extras,
      exists (select 1 from @.acknowledged a where a.queue = j.queue and a.lane = j.lane and a.seq = j.seq),
      exists (select 1 from @.cancellations c where c.id = j.id), x.delivery_limit, clock_timestamp()
    from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi),
      lateral (select y.id, y.lane, y.seq, y.deliveries, y.extras, y.queue from @.jobs y where y.queue = k.queue and y.lane = t.lane and y.seq >= t.lo and y.seq <= t.hi offset 0) j,
      lateral (select q.delivery_limit from @.queues q where q.id = k.queue limit 1) x
    where k.worker = w and not k.closed
    order by k.queue, k.claim, j.lane desc, j.seq limit most;
end $$;

-- Takes jobs of one queue back from a lost worker. fates: null: deliver again, 'cancelled', or the reason for the bin.
create function @.rescue(w uuid, q int, cs bigint[], ls smallint[], ss bigint[], new_extras bytea[], fates text[], out redelivered int, out buried int)
language plpgsql @pinned set enable_hashjoin = on as $$
declare base bigint; stamp timestamptz := clock_timestamp(); ended int;
begin
  perform @.require_read_committed();
  perform pg_advisory_xact_lock(@class, q);
  perform pg_current_xact_id();
  if array_position(fates, null) is not null then base := nextval(@.lane_sequence(q, 10)) << 16; end if;
  with e as materialized (
    select u.n, u.l, u.s, y.ctid as place from unnest(cs, ls, ss) with ordinality as u(c, l, s, n),
      lateral (select j.ctid from @.jobs j where j.queue = q and j.lane = u.l and j.seq = u.s limit 1) y
    where exists (select 1 from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi)
      where k.queue = q and k.claim = u.c and case when k.worker = w then true end and t.lane = u.l and u.s >= t.lo and u.s <= t.hi)),
  out_of as (
    delete from @.jobs j where j.ctid = any (array(select e.place from e))
    returning j.lane, j.seq, j.priority, j.attempt, j.deliveries, j.id, j.enqueued_at, j.due_at, j.expires_at, j.task, j.payload, j.extras),
  gone as materialized (
    select e.n, j.lane, j.seq, coalesce(j.priority, j.lane) as priority, coalesce(j.attempt, 0) as attempt, coalesce(j.deliveries, 0) + 1 as deliveries, j.id,
      j.enqueued_at, coalesce(j.due_at, j.enqueued_at) as due_at, j.expires_at, j.task, j.payload, coalesce(new_extras[e.n], j.extras) as extras
    from e, out_of j where j.lane = e.l and j.seq = e.s),
  again as (
    insert into @.jobs (queue, lane, seq, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, task, payload, extras)
    select q, 10, base + row_number() over (order by g.n) - 1, g.priority, nullif(g.attempt, 0), g.deliveries, g.id, g.enqueued_at, g.due_at, g.expires_at,
      g.task, g.payload, g.extras from gone g where fates[g.n] is null returning seq),
  binned as (
    insert into @.dead (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, reason)
    select q, g.priority, g.attempt, g.deliveries, g.id, g.enqueued_at, g.due_at, g.expires_at, stamp, g.task, g.payload, g.extras, fates[g.n]
    from gone g where fates[g.n] <> 'cancelled' order by g.n returning n),
  unmarked as (delete from @.acknowledged a using gone g where a.queue = q and a.lane = g.lane and a.seq = g.seq),
  forgotten as (delete from @.cancellations c using gone g where c.id = g.id)
  select (select count(*) from again), (select count(*) from binned), count(*) filter (where fates[g.n] = 'cancelled') into redelivered, buried, ended from gone g;
  if redelivered + buried + ended > 0 then
    insert into @.tally (queue, settled, readmitted, redelivered, buried, dead, cancelled)
      values (q, redelivered + buried + ended, redelivered, redelivered, buried, buried, ended);
    perform @.admit(q, redelivered);
  end if;
end $$;

-- Ends a dead worker once nothing is left in its claims. The newest row of a queue stays as the state, closed.
create function @.bury_worker(w uuid) returns boolean language plpgsql @pinned as $$
declare c record;
begin
  for c in select k.queue, array_agg(k.claim) as cs from @.claims k where k.worker = w group by k.queue order by k.queue loop
    perform pg_advisory_xact_lock(@class, c.queue);
    if exists (select 1 from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi),
          lateral (select 1 from @.jobs y where y.queue = k.queue and y.lane = t.lane and y.seq >= t.lo and y.seq <= t.hi limit 1) j
        where k.worker = w and k.queue = c.queue and not k.closed) then
      return false;
    end if;
    perform @.close_claims(w, array_fill(c.queue, array[cardinality(c.cs)]), c.cs);
  end loop;
  delete from @.workers x where x.id = w and x.dead;
  return true;
end $$;

-- Takes waiting jobs of one queue out of `jobs`, under its lock. fate: 'cancelled', 'dropped', or the reason for the bin. Held ones stay.
create function @.pull(q int, ls smallint[], ss bigint[], fate text) returns int language plpgsql @pinned as $$
declare s @.claims; n int; stamp timestamptz := clock_timestamp();
begin
  perform @.require_read_committed();
  perform pg_advisory_xact_lock(@class, q);
  s := @.state(q);
  with e as materialized (
    select y.ctid as place from unnest(ls, ss) as u(l, s),
      lateral (select j.ctid from @.jobs j where j.queue = q and j.lane = u.l and j.seq = u.s limit 1) y
    where u.s > s.cursor[u.l + 1] or exists (select 1 from unnest(s.hole_lane, s.hole_lo, s.hole_hi) as h(lane, lo, hi) where h.lane = u.l and u.s >= h.lo and u.s <= h.hi)),
  gone as (
    delete from @.jobs j where j.ctid = any (array(select e.place from e))
    returning coalesce(j.priority, j.lane) as priority, coalesce(j.attempt, 0) as attempt, coalesce(j.deliveries, 0) as deliveries, j.id,
      j.enqueued_at, coalesce(j.due_at, j.enqueued_at) as due_at, j.expires_at, j.task, j.payload, j.extras),
  binned as (
    insert into @.dead (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, reason)
    select q, g.priority, g.attempt, g.deliveries, g.id, g.enqueued_at, g.due_at, g.expires_at, stamp, g.task, g.payload, g.extras, fate
    from gone g where fate not in ('cancelled', 'dropped') order by g.enqueued_at)
  select count(*) into n from gone;
  if n > 0 then
    insert into @.tally (queue, removed, cancelled, dropped, buried, dead)
      values (q, n, case fate when 'cancelled' then n end, case fate when 'dropped' then n end,
        case when fate not in ('cancelled', 'dropped') then n end, case when fate not in ('cancelled', 'dropped') then n end);
  end if;
  return n;
end $$;

-- Makes room in a queue that is over its length: its oldest waiting jobs go to the bin.
create function @.trim(q int) returns int language plpgsql @pinned as $$
declare s @.claims; excess bigint; ls smallint[]; ss bigint[]; room bigint;
begin
  select x.max_length into room from @.queues x where x.id = q and x.drop_oldest and x.max_length is not null;
  if not found then return 0; end if;
  perform @.require_read_committed();
  perform pg_advisory_xact_lock(@class, q);
  excess := least(@.ready_count(q) - room, 10000);
  if excess <= 0 then return 0; end if;
  s := @.state(q);
  select array_agg(o.lane), array_agg(o.seq) into ls, ss from (
    select c.lane, c.seq from (
      select (l.lane - 1)::smallint as lane, l.cur + 1 as lo, 9223372036854775807 as hi from unnest(s.cursor) with ordinality as l(cur, lane)
      union all
      select h.lane, h.lo, h.hi from unnest(s.hole_lane, s.hole_lo, s.hole_hi) as h(lane, lo, hi)) r,
      lateral (select j.lane, j.seq, j.enqueued_at from @.jobs j where j.queue = q and j.lane = r.lane and j.seq >= r.lo and j.seq <= r.hi
        order by j.seq limit excess) c
    order by c.enqueued_at, c.seq, c.lane limit excess) o;
  return @.pull(q, ls, ss, 'max_length');
end $$;

-- Moves waiting jobs whose time to live has passed.
create function @.expire(most int) returns int language plpgsql @pinned as $$
declare g record; n int := 0; k int; stamp timestamptz := clock_timestamp();
begin
  -- Held jobs stand in the index too, and there are never more than workers hold: enough room is left for them.
  for g in select e.queue, array_agg(e.lane) as ls, array_agg(e.seq) as ss from (
      select j.queue, j.lane, j.seq from @.jobs j where j.expires_at <= stamp order by j.expires_at limit most + 5000) e
    group by e.queue order by e.queue
  loop
    k := @.pull(g.queue, g.ls, g.ss, (select case when x.drop_expired then 'dropped' else 'expired' end from @.queues x where x.id = g.queue));
    n := n + k;
  end loop;
  with out_of as (
    delete from @.parked p where p.n = any (array(select y.n from @.parked y where y.expires_at <= stamp order by y.expires_at limit most))
    returning p.queue, p.priority, p.attempt, p.deliveries, p.id, p.enqueued_at, p.due_at, p.expires_at, p.task, p.payload, p.extras),
  fate as (select o.*, x.drop_expired from out_of o, @.queues x where x.id = o.queue),
  binned as (
    insert into @.dead (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, reason)
    select f.queue, f.priority, f.attempt, f.deliveries, f.id, f.enqueued_at, f.due_at, f.expires_at, stamp, f.task, f.payload, f.extras, 'expired'
    from fate f where not f.drop_expired),
  counted as (
    insert into @.tally (queue, parked, dropped, buried, dead)
    select f.queue, -count(*), count(*) filter (where f.drop_expired), count(*) filter (where not f.drop_expired), count(*) filter (where not f.drop_expired)
    from fate f group by f.queue)
  select count(*) into k from fate;
  return n + k;
end $$;

-- Removes dead jobs after their queue's retention, ids after their week, and answers to cancellations of jobs that are gone.
create function @.prune(most int) returns int language plpgsql @pinned as $$
declare pruned int := 0; k int; q record; stamp timestamptz := clock_timestamp();
begin
  if not pg_try_advisory_xact_lock(@class, -3) then return 0; end if;
  for q in select x.id, x.dead_retention from @.queues x where x.dead_retention is not null order by x.id loop
    delete from @.dead d where d.n = any (array(
      select y.n from @.dead y where y.queue = q.id and y.since <= stamp - q.dead_retention * interval '1 microsecond' order by y.since limit most - pruned));
    get diagnostics k = row_count;
    if k > 0 then insert into @.tally (queue, dropped, dead) values (q.id, k, -k); end if;
    pruned := pruned + k;
    exit when pruned >= most;
  end loop;
  delete from @.remembered r where r.id = any (array(select y.id from @.remembered y where y.at < stamp - interval '7 days' order by y.at limit most));
  delete from @.cancellations c where c.at < stamp - interval '1 day';
  return pruned;
end $$;

-- Adds old rows of the tally up.
create function @.roll_up() returns void language plpgsql @pinned as $$
declare old_mark bigint; new_mark bigint;
begin
  if not pg_try_advisory_xact_lock(@class, -4) then return; end if;
  select k.mark into old_mark from @.marks k where k.name = 'tally';
  new_mark := @.mark('tally', coalesce((select max(y.n) from @.tally y), (select k.next from @.marks k where k.name = 'tally'), 0));
  old_mark := coalesce(old_mark, 0);
  if new_mark <= old_mark then return; end if;
  with gone as (delete from @.tally y where y.n > old_mark and y.n <= new_mark
    returning y.queue, y.deferred, y.readmitted, y.removed, y.settled, y.done, y.retried, y.buried, y.redelivered, y.cancelled, y.dropped, y.scheduled, y.parked, y.dead),
  added as (select g.queue, coalesce(sum(g.deferred), 0) as deferred, coalesce(sum(g.readmitted), 0) as readmitted, coalesce(sum(g.removed), 0) as removed,
      coalesce(sum(g.settled), 0) as settled, coalesce(sum(g.done), 0) as done, coalesce(sum(g.retried), 0) as retried, coalesce(sum(g.buried), 0) as buried,
      coalesce(sum(g.redelivered), 0) as redelivered, coalesce(sum(g.cancelled), 0) as cancelled, coalesce(sum(g.dropped), 0) as dropped,
      coalesce(sum(g.scheduled), 0) as scheduled, coalesce(sum(g.parked), 0) as parked, coalesce(sum(g.dead), 0) as dead
    from gone g group by g.queue)
  update @.totals t set deferred = t.deferred + a.deferred, readmitted = t.readmitted + a.readmitted, removed = t.removed + a.removed, settled = t.settled + a.settled,
    done = t.done + a.done, retried = t.retried + a.retried, buried = t.buried + a.buried, redelivered = t.redelivered + a.redelivered,
    cancelled = t.cancelled + a.cancelled, dropped = t.dropped + a.dropped, scheduled = t.scheduled + a.scheduled, parked = t.parked + a.parked, dead = t.dead + a.dead
  from added a where a.queue = t.queue;
end $$;

-- One round of all duties but the rescue, which needs the program. dead_workers: found now; lost: all that wait for their rescue.
create function @.duties(most int, out promoted int, out more boolean, out woken int[], out next_due bigint, out dead_workers int, out lost uuid[], out labels text[],
  out pruned int, out expired int) language plpgsql @pinned as $$
declare q int;
begin
  perform @.require_read_committed();
  select p.moved, p.more, p.woken, p.next_due into promoted, more, woken, next_due from @.promote(most) p;
  pruned := @.prune(most);
  perform @.roll_up();
  select coalesce(count(*) filter (where d.fresh), 0), coalesce(array_agg(d.id), '{}'), coalesce(array_agg(d.label), '{}') into dead_workers, lost, labels from @.find_dead() d;
  expired := @.expire(most);
  for q in select x.id from @.queues x where x.drop_oldest and x.max_length is not null order by x.id loop
    if @.ready_estimate(q) > (select x.max_length from @.queues x where x.id = q) then perform @.trim(q); end if;
  end loop;
  more := more or pruned >= most or expired >= most;
end $$;
