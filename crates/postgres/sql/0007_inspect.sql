-- Removes a job that waits, or asks for the end of one that is held. room: null: there is no such job; held: asked.
create function @.cancel(job uuid, out room text) language plpgsql as $$
declare j record; q int;
begin
  -- It may move from room to room between two statements; three looks are more than any job moves in that time.
  for i in 1..3 loop
    select y.queue, y.lane, y.seq into j from @.jobs y where y.id = job limit 1;
    if found then
      if @.pull(j.queue, array[j.lane], array[j.seq], 'cancelled') = 1 then room := 'jobs'; return; end if;
      if exists (select 1 from @.jobs y where y.queue = j.queue and y.lane = j.lane and y.seq = j.seq) then
        insert into @.cancellations (id, at) values (job, clock_timestamp()) on conflict (id) do nothing;
        room := 'held';
        return;
      end if;
    end if;
    delete from @.scheduled y where y.n = (select x.n from @.scheduled x where x.id = job limit 1) returning y.queue into q;
    if found then
      insert into @.tally (queue, cancelled, scheduled) values (q, 1, -1);
      room := 'scheduled';
      return;
    end if;
    delete from @.parked y where y.n = (select x.n from @.parked x where x.id = job limit 1) returning y.queue into q;
    if found then
      insert into @.tally (queue, cancelled, parked) values (q, 1, -1);
      room := 'parked';
      return;
    end if;
    delete from @.dead y where y.n = (select x.n from @.dead x where x.id = job limit 1) returning y.queue into q;
    if found then
      insert into @.tally (queue, cancelled, dead) values (q, 1, -1);
      room := 'dead';
      return;
    end if;
  end loop;
end $$;

-- One shape for the jobs of all rooms.
create view @.everything as
select 'jobs'::text as room, null::bigint as n, j.queue, j.lane, j.seq, coalesce(j.priority, j.lane) as priority, coalesce(j.attempt, 0) as attempt,
  coalesce(j.deliveries, 0) as deliveries, j.id, j.enqueued_at, coalesce(j.due_at, j.enqueued_at) as due_at, j.expires_at,
  coalesce(j.due_at, j.enqueued_at) as since, j.task, j.payload, j.extras, null::text as waits_for, null::text as reason from @.jobs j
union all
select 'scheduled', n, queue, null, null, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, null, null from @.scheduled
union all
select 'parked', n, queue, null, null, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, waits_for, null from @.parked
union all
select 'dead', n, queue, null, null, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, null, reason from @.dead;

-- Who holds a place of `jobs`; nothing if nobody does.
create function @.holder(q int, l smallint, s bigint) returns uuid language plpgsql @pinned as $$
declare st @.claims := @.state(q); w uuid;
begin
  if s > st.cursor[l + 1] then return null; end if;
  select k.worker into w from @.claims k where k.queue = q and not k.closed
    and exists (select 1 from unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi) where t.lane = l and s >= t.lo and s <= t.hi) limit 1;
  return w;
end $$;

-- Removes jobs of a room by their numbers.
create function @.purge(room text, ns bigint[]) returns int language plpgsql as $$
declare n int;
begin
  if room = 'scheduled' then
    with gone as (delete from @.scheduled y where y.n = any(ns) returning y.queue),
    c as (insert into @.tally (queue, dropped, scheduled) select queue, count(*), -count(*) from gone group by queue)
    select count(*) into n from gone;
  elsif room = 'parked' then
    with gone as (delete from @.parked y where y.n = any(ns) returning y.queue),
    c as (insert into @.tally (queue, dropped, parked) select queue, count(*), -count(*) from gone group by queue)
    select count(*) into n from gone;
  else
    with gone as (delete from @.dead y where y.n = any(ns) returning y.queue),
    c as (insert into @.tally (queue, dropped, dead) select queue, count(*), -count(*) from gone group by queue)
    select count(*) into n from gone;
  end if;
  return n;
end $$;

-- Sends dead jobs back, attempts and deliveries from zero, without a time to live: a person wants them to run. Gives the queues.
create function @.replay(ns bigint[], new_extras bytea[], target int) returns int[] language plpgsql @pinned as $$
declare woken int[]; stamp timestamptz;
begin
  perform pg_current_xact_id();
  stamp := clock_timestamp();
  with gone as materialized (delete from @.dead d using unnest(ns, new_extras) as u(n, extras) where d.n = u.n
    returning d.n, d.queue as origin, coalesce(target, d.queue) as queue, d.priority, d.id, d.enqueued_at, d.task, d.payload, u.extras),
  groups as materialized (select g.queue, g.priority, nextval(@.lane_sequence(g.queue, g.priority)) << 16 as base
    from (select distinct queue, priority from gone) g),
  entered as (insert into @.jobs (queue, lane, seq, id, enqueued_at, due_at, task, payload, extras)
    select o.queue, o.priority, g.base + row_number() over (partition by o.queue, o.priority order by o.n) - 1, o.id, o.enqueued_at, stamp, o.task, o.payload, o.extras
    from gone o, groups g where g.queue = o.queue and g.priority = o.priority returning queue),
  left_bin as (insert into @.tally (queue, dead) select g.origin, -count(*) from gone g group by g.origin),
  counted as (insert into @.tally (queue, readmitted) select e.queue, count(*) from entered e group by e.queue returning queue, readmitted)
  select coalesce(array_agg(c.queue), '{}') into woken from counted c where @.admit(c.queue, c.readmitted) is not null;
  return woken;
end $$;

-- The figures of every queue, at a cost that does not depend on the number of jobs.
create function @.queue_stats() returns table (id int, ready bigint, held bigint, scheduled bigint, parked bigint, dead bigint, oldest timestamptz, enqueued bigint,
  done bigint, retried bigint, buried bigint, redelivered bigint, cancelled bigint, dropped bigint, stamp timestamptz) language plpgsql @pinned as $$
#variable_conflict use_column
declare f record; s @.claims; admitted bigint; first_due timestamptz;
begin
  for f in select g.queue, g.deferred, g.readmitted, g.removed, g.settled, g.done, g.retried, g.buried, g.redelivered, g.cancelled, g.dropped, g.scheduled, g.parked, g.dead
    from @.figures g order by g.queue
  loop
    s := @.state(f.queue);
    admitted := @.admitted(f.queue);
    select min(c.due) into first_due from (
      select (l.lane - 1)::smallint as lane, l.cur + 1 as lo, 9223372036854775807 as hi from unnest(s.cursor) with ordinality as l(cur, lane)
      union all
      select h.lane, h.lo, h.hi from unnest(s.hole_lane, s.hole_lo, s.hole_hi) as h(lane, lo, hi)) r,
      lateral (select coalesce(j.due_at, j.enqueued_at) as due from @.jobs j where j.queue = f.queue and j.lane = r.lane and j.seq >= r.lo and j.seq <= r.hi
        order by j.seq limit 1) c;
    id := f.queue;
    -- Nothing there is certain; a figure above it comes from enqueues that were rolled back or are in progress.
    ready := case when first_due is null then 0 else greatest(1, admitted - s.taken - f.removed) end;
    held := greatest(0, s.taken - f.settled);
    scheduled := greatest(0, f.scheduled); parked := greatest(0, f.parked); dead := greatest(0, f.dead);
    oldest := first_due;
    enqueued := greatest(0, admitted - f.readmitted + f.deferred);
    done := f.done; retried := f.retried; buried := f.buried; redelivered := f.redelivered; cancelled := f.cancelled; dropped := f.dropped;
    stamp := clock_timestamp();
    return next;
  end loop;
end $$;

-- Rows of `jobs` and how many of the three places each is in: after the cursor, in a hole, in an open claim. Must be one.
create function @.misplaced(most int) returns table (queue int, lane smallint, seq bigint, places int) language sql as $$
  with newest as materialized (select q.id as queue, s.cursor, s.hole_lane, s.hole_lo, s.hole_hi from @.queues q
      left join lateral (select c.cursor, c.hole_lane, c.hole_lo, c.hole_hi from @.claims c where c.queue = q.id order by c.claim desc limit 1) s on true),
  holes as materialized (select n.queue, h.lane, h.lo, h.hi from newest n, unnest(n.hole_lane, n.hole_lo, n.hole_hi) as h(lane, lo, hi)),
  open as materialized (select k.queue, t.lane, t.lo, t.hi from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi) where not k.closed)
  select * from (
    select j.queue, j.lane, j.seq, (case when j.seq > coalesce(n.cursor[j.lane + 1], 0) then 1 else 0 end
      + case when j.seq > coalesce(n.cursor[j.lane + 1], 0) then 0 else
          (select count(*) from holes h where h.queue = j.queue and h.lane = j.lane and j.seq between h.lo and h.hi) end
      + case when j.seq > coalesce(n.cursor[j.lane + 1], 0) then 0 else
          (select count(*) from open o where o.queue = j.queue and o.lane = j.lane and j.seq between o.lo and o.hi) end)::int as places
    from @.jobs j left join newest n on n.queue = j.queue) x
  where x.places <> 1 limit most
$$;

-- Gives rows that nothing leads to back to their queue, as holes of a new state. Under the lock it looks again at each.
create function @.reclaim(q int, ls smallint[], ss bigint[]) returns int language plpgsql @pinned as $$
declare s @.claims; n int; hl smallint[]; hlo bigint[];
begin
  perform @.require_read_committed();
  perform pg_advisory_xact_lock(@class, q);
  s := @.state(q);
  select array_agg(u.l), array_agg(u.s) into hl, hlo from unnest(ls, ss) as u(l, s)
  where exists (select 1 from @.jobs j where j.queue = q and j.lane = u.l and j.seq = u.s)
    and u.s <= s.cursor[u.l + 1]
    and not exists (select 1 from unnest(s.hole_lane, s.hole_lo, s.hole_hi) as h(lane, lo, hi) where h.lane = u.l and u.s between h.lo and h.hi)
    and not exists (select 1 from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi)
      where k.queue = q and not k.closed and t.lane = u.l and u.s between t.lo and t.hi);
  if hl is null then return 0; end if;
  n := cardinality(hl);
  s.took_lane := '{}'; s.took_lo := '{}'; s.took_hi := '{}'; s.taken := s.taken - n;
  s.hole_lane := s.hole_lane || hl; s.hole_lo := s.hole_lo || hlo; s.hole_hi := s.hole_hi || hlo;
  s.hole_xmax := s.hole_xmax || array_fill(pg_current_xact_id(), array[n]);
  s := @.push(s, '00000000-0000-0000-0000-000000000000', pg_current_xact_id());
  update @.claims k set closed = true where k.queue = q and k.claim = s.claim;
  return n;
end $$;

-- Jobs that are ready or held, oldest first over all streams (queue, lane), each read on from its own place by the primary key.
create function @.list_jobs(qs int[], lanes smallint[], afters bigint[], wanted_task text, wanted_id uuid, older bigint, idle_only boolean, most int)
returns table (queue int, lane smallint, seq bigint, priority smallint, attempt int, deliveries int, id uuid, enqueued_at timestamptz, due_at timestamptz,
  expires_at timestamptz, task text, payload bytea, extras bytea, held_by text) language plpgsql @pinned as $$
#variable_conflict use_column
declare stamp timestamptz := clock_timestamp();
begin
  return query select j.queue, j.lane, j.seq, coalesce(j.priority, j.lane), coalesce(j.attempt, 0), coalesce(j.deliveries, 0), j.id, j.enqueued_at,
      coalesce(j.due_at, j.enqueued_at), j.expires_at, j.task, j.payload, j.extras, (select w.label from @.workers w where w.id = j.holder)
    from unnest(qs, lanes, afters) as u(q, l, a),
      lateral (select y.queue, y.lane, y.seq, y.priority, y.attempt, y.deliveries, y.id, y.enqueued_at, y.due_at, y.expires_at, y.task, y.payload, y.extras,
          @.holder(y.queue, y.lane, y.seq) as holder
        from @.jobs y where y.queue = u.q and y.lane = u.l and y.seq > u.a
          and (wanted_task is null or y.task = wanted_task) and (wanted_id is null or case when y.id = wanted_id then true end)
          and (older is null or coalesce(y.due_at, y.enqueued_at) < stamp - older * interval '1 microsecond')
          and (not idle_only or @.holder(y.queue, y.lane, y.seq) is null)
        order by y.seq limit most) j
    order by coalesce(j.due_at, j.enqueued_at), j.queue, j.lane, j.seq limit most;
end $$;
