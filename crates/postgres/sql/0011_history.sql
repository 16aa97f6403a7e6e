-- Jobs that are done, of queues that ask for it: a row for each batch with the ids in order, in partitions of a day that are dropped whole.
alter table @.queues add column history bigint;
create table @.history (
  at     timestamptz not null,
  queue  int         not null,
  worker text        not null,
  low    uuid        not null,
  high   uuid        not null,
  ids    uuid[]      not null
) partition by range (at);
-- Ids of one time lie together, so a summary of each few pages is enough to find the batches that may hold one.
create index history_ids on @.history using brin (low, high) with (pages_per_range = 8, autosummarize = on);
-- For batches of days whose partition nobody has made: no verdict may fail for it.
create table @.history_rest partition of @.history default;

create function @.note_finished(q int, w uuid, ids uuid[]) returns void language sql as $$
  insert into @.history (at, queue, worker, low, high, ids)
  select clock_timestamp(), q, coalesce((select x.label from @.workers x where x.id = w), w::text), ids[1], ids[cardinality(ids)], ids
  where cardinality(ids) > 0
$$;

create function @.finished(job uuid) returns table (queue int, worker text, at timestamptz) language sql stable as $$
  select h.queue, h.worker, h.at from @.history h, @.queues x
  where h.low <= job and h.high >= job and job = any(h.ids) and x.id = h.queue and h.at > clock_timestamp() - x.history * interval '1 microsecond'
  order by h.at desc limit 1
$$;

-- Makes the partitions of today and tomorrow and drops those that no queue remembers; a definer's function, as declare_queue. It waits for
-- nobody: what others have locked is done in the next round.
create function @.keep_history() returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare longest bigint; day date; part record; oldest timestamptz;
begin
  select max(x.history) into longest from @.queues x;
  if longest is null and not exists (select 1 from pg_inherits i where i.inhparent = '@.history'::regclass offset 1) then return; end if;
  if not pg_try_advisory_xact_lock(@class, -6) then return; end if;
  if longest is not null then
    for n in 0..1 loop
      day := (clock_timestamp() at time zone 'UTC')::date + n;
      continue when to_regclass('@.history_' || to_char(day, 'YYYYMMDD')) is not null;
      begin
        execute format('create table @.%I partition of @.history for values from (%L) to (%L)', 'history_' || to_char(day, 'YYYYMMDD'),
          day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
      exception when lock_not_available or check_violation or insufficient_privilege then null;   -- the day's batches go to the rest
      end;
    end loop;
  end if;
  oldest := clock_timestamp() - least(coalesce(longest, 0), 3155760000000000) * interval '1 microsecond';
  for part in select c.oid::regclass as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day from pg_inherits i, pg_class c
    where i.inhparent = '@.history'::regclass and c.oid = i.inhrelid and c.relname ~ '^history_[0-9]{8}$'
  loop
    continue when (part.day + 1)::timestamp at time zone 'UTC' > oldest;
    begin
      execute 'drop table ' || part.name;
    exception when lock_not_available or insufficient_privilege then null;
    end;
  end loop;
  delete from @.history_rest r where r.at < oldest;
end $$;

-- The functions of verdicts and duties as before, with the lines about the history.
create or replace function @.settle_done(w uuid, cq int[], cc bigint[], rc int[], rl smallint[], rlo bigint[], rhi bigint[], sc int[], sl smallint[], ss bigint[],
  close_q int[], close_c bigint[]) returns void language plpgsql @pinned as $$
declare k @.claims; n bigint; gone bigint; wanted bigint; ids uuid[];
begin
  for i in 1 .. cardinality(cc) loop
    select * into k from @.claims c where c.queue = cq[i] and c.claim = cc[i];
    if not found or k.worker <> w or k.closed then raise exception using errcode = 'CJ010', message = 'a verdict is stale'; end if;
    gone := 0; wanted := 0;
    if exists (select 1 from @.queues x where x.id = cq[i] and x.history is not null) then
      -- Only here: what is never asked for is not written. A job that is gone meanwhile ends all of it below.
      select array_agg(d.id order by d.id) into ids from (
        select j.id from unnest(rc, rl, rlo, rhi) as u(c, lane, lo, hi),
          lateral (select y.id from @.jobs y where y.queue = cq[i] and y.lane = u.lane and y.seq >= u.lo and y.seq <= u.hi offset 0) j where u.c = i
        union all
        select j.id from unnest(sc, sl, ss) as u(c, lane, seq),
          lateral (select y.id from @.jobs y where y.queue = cq[i] and y.lane = u.lane and y.seq = u.seq limit 1) j where u.c = i) d;
      perform @.note_finished(cq[i], w, ids);
    end if;
    for j in 1 .. cardinality(rc) loop
      continue when rc[j] <> i;
      if not exists (select 1 from unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi) where t.lane = rl[j] and rlo[j] >= t.lo and rhi[j] <= t.hi) then
        raise exception using errcode = 'CJ010', message = 'a verdict is stale';
      end if;
      delete from @.jobs y where y.queue = cq[i] and y.lane = rl[j] and y.seq >= rlo[j] and y.seq <= rhi[j];
      get diagnostics n = row_count;
      gone := gone + n; wanted := wanted + (rhi[j] - rlo[j] + 1);
    end loop;
    if cardinality(sc) > 0 then
      delete from @.jobs y where y.ctid = any (array(
        select j.ctid from unnest(sc, sl, ss) as u(c, lane, seq),
          lateral (select x.ctid from @.jobs x where x.queue = cq[i] and x.lane = u.lane and x.seq = u.seq limit 1) j
        where u.c = i and exists (select 1 from unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi)
          where t.lane = u.lane and u.seq >= t.lo and u.seq <= t.hi)));
      get diagnostics n = row_count;
      gone := gone + n;
      select wanted + count(*) into wanted from unnest(sc) as u(c) where u.c = i;
    end if;
    if gone <> wanted then raise exception using errcode = 'CJ010', message = 'a verdict is stale'; end if;
    insert into @.tally (queue, settled, done) values (cq[i], gone, gone);
  end loop;
  if cardinality(close_c) > 0 then perform @.close_claims(w, close_q, close_c); end if;
end $$;

create or replace function @.settle(w uuid, qs int[], cs bigint[], ls smallint[], ss bigint[], kinds smallint[], afters bigint[], failed boolean[], attempts int[],
  new_extras bytea[], reasons text[], close_q int[], close_c bigint[], seen_at timestamptz) returns int[] language plpgsql @pinned set enable_hashjoin = on as $$
declare q int; done_queues int[]; done_ids uuid[]; done_in int[]; live boolean[]; applied int[]; back int[]; stamp timestamptz;
begin
  if 5 = any(kinds) then
    perform @.require_read_committed();
    for q in select distinct u.q from unnest(qs, kinds) as u(q, kind) where u.kind = 5 order by 1 loop
      perform pg_advisory_xact_lock(@class, q);
    end loop;
  end if;
  perform pg_current_xact_id();
  stamp := coalesce(seen_at, clock_timestamp());      -- of `peek`: a history entry and the delay after it have one time
  -- The fence: the claim is there, is this worker's, and holds the place. A verdict that comes twice in one batch counts once.
  select array_agg(f.live order by f.n) into live from (
    select u.n, row_number() over (partition by u.q, u.c, u.l, u.s order by u.n) = 1 and exists (
        select 1 from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi)
        where k.queue = u.q and k.claim = u.c and case when k.worker = w then true end and t.lane = u.l and u.s >= t.lo and u.s <= t.hi) as live
    from unnest(qs, cs, ls, ss) with ordinality as u(q, c, l, s, n)) f;
  with e as materialized (
    select u.n, u.q, u.l, u.s, y.ctid as place from unnest(qs, ls, ss, kinds, live) with ordinality as u(q, l, s, kind, live, n),
      lateral (select j.ctid from @.jobs j where j.queue = u.q and j.lane = u.l and j.seq = u.s limit 1) y where u.live and u.kind <> 5),
  out_of as (
    delete from @.jobs j where j.ctid = any (array(select e.place from e))
    returning j.queue, j.lane, j.seq, j.priority, j.attempt, j.deliveries, j.id, j.enqueued_at, j.due_at, j.expires_at, j.task, j.payload, j.extras),
  gone as materialized (
    select e.n, j.queue, j.lane, j.seq, coalesce(j.priority, j.lane) as priority, coalesce(attempts[e.n], j.attempt, 0) as attempt,
      coalesce(j.deliveries, 0) as deliveries, j.id, j.enqueued_at, coalesce(j.due_at, j.enqueued_at) as due_at, j.expires_at, j.task, j.payload,
      coalesce(new_extras[e.n], j.extras) as extras
    from e, out_of j where j.queue = e.q and j.lane = e.l and j.seq = e.s),
  later as (
    insert into @.scheduled (queue, priority, attempt, deliveries, id, enqueued_at, due_at, since, task, payload, extras)
    select g.queue, g.priority, g.attempt, g.deliveries, g.id, g.enqueued_at, stamp + afters[g.n] * interval '1 microsecond', stamp, g.task, g.payload, g.extras
    from gone g where kinds[g.n] = 2 order by g.n),
  buried as (
    insert into @.dead (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, reason)
    select g.queue, g.priority, g.attempt, g.deliveries, g.id, g.enqueued_at, g.due_at, g.expires_at, stamp, g.task, g.payload, g.extras, reasons[g.n]
    from gone g where kinds[g.n] = 3 order by g.n),
  put_by as (
    insert into @.parked (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, waits_for)
    select g.queue, g.priority, g.attempt, g.deliveries, g.id, g.enqueued_at, g.due_at, g.expires_at, stamp, g.task, g.payload, g.extras, g.task
    from gone g where kinds[g.n] = 4 order by g.n),
  unmarked as (
    delete from @.acknowledged a using gone g where a.queue = g.queue and a.lane = g.lane and a.seq = g.seq),
  forgotten as (
    delete from @.cancellations c using gone g where c.id = g.id and kinds[g.n] <> 2 and kinds[g.n] <> 4),
  counted as (
    insert into @.tally (queue, settled, done, cancelled, retried, buried, scheduled, parked, dead)
    select g.queue, count(*), nullif(count(*) filter (where kinds[g.n] = 0), 0), nullif(count(*) filter (where kinds[g.n] = 1), 0),
      nullif(count(*) filter (where kinds[g.n] = 2 and failed[g.n]), 0), nullif(count(*) filter (where kinds[g.n] = 3), 0),
      nullif(count(*) filter (where kinds[g.n] = 2), 0), nullif(count(*) filter (where kinds[g.n] = 4), 0), nullif(count(*) filter (where kinds[g.n] = 3), 0)
    from gone g group by g.queue)
  select array_agg(g.n::int), array_agg(distinct g.queue) filter (where kinds[g.n] = 0),
      array_agg(g.id order by g.id) filter (where kinds[g.n] = 0), array_agg(g.queue order by g.id) filter (where kinds[g.n] = 0)
    into applied, done_queues, done_ids, done_in from gone g;
  foreach q in array coalesce(done_queues, '{}') loop
    if exists (select 1 from @.queues x where x.id = q and x.history is not null) then
      perform @.note_finished(q, w, array(select u.id from unnest(done_ids, done_in) as u(id, q2) where u.q2 = q order by u.id));
    end if;
  end loop;
  for q in select distinct u.q from unnest(qs, kinds, live) as u(q, kind, live) where u.kind = 5 and u.live order by 1 loop
    back := @.give_back(w, q, array(select u.n::int from unnest(qs, kinds, live) with ordinality as u(q2, kind, live, n) where u.q2 = q and u.kind = 5 and u.live), cs, ls, ss);
    applied := coalesce(applied, '{}') || back;
  end loop;
  if cardinality(close_c) > 0 then perform @.close_claims(w, close_q, close_c); end if;
  return coalesce(applied, '{}');
end $$;

create or replace function @.duties(most int, out promoted int, out more boolean, out woken int[], out next_due bigint, out dead_workers int, out lost uuid[], out labels text[],
  out pruned int, out expired int) language plpgsql @pinned as $$
declare q int;
begin
  perform @.require_read_committed();
  select p.moved, p.more, p.woken, p.next_due into promoted, more, woken, next_due from @.promote(most) p;
  pruned := @.prune(most);
  perform @.roll_up();
  perform @.roll_up_parked();
  perform @.keep_history();
  select coalesce(count(*) filter (where d.fresh), 0), coalesce(array_agg(d.id), '{}'), coalesce(array_agg(d.label), '{}') into dead_workers, lost, labels from @.find_dead() d;
  expired := @.expire(most);
  for q in select x.id from @.queues x where x.drop_oldest and x.max_length is not null order by x.id loop
    if @.ready_estimate(q) > (select x.max_length from @.queues x where x.id = q) then perform @.trim(q); end if;
  end loop;
  more := more or pruned >= most or expired >= most;
end $$;

-- As before, and a row that was closed at the same time as its successor was made does not stay for ever.
create or replace function @.close_claims(w uuid, qs int[], cs bigint[]) returns void language plpgsql as $$
declare newest bigint; k @.claims;
begin
  for i in 1 .. cardinality(cs) loop
    select * into k from @.claims c where c.queue = qs[i] and c.claim = cs[i];
    continue when not found or k.worker <> w or k.closed;
    continue when exists (select 1 from unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi),
      lateral (select 1 from @.jobs j where j.queue = qs[i] and j.lane = t.lane and j.seq >= t.lo and j.seq <= t.hi limit 1) j);
    select c.claim into newest from @.claims c where c.queue = qs[i] order by c.claim desc limit 1;
    if newest = cs[i] then
      update @.claims c set closed = true where c.queue = qs[i] and c.claim = cs[i];
      -- One that was closed while this one was made: nobody comes by it again.
      if k.prev is not null then delete from @.claims c where c.queue = qs[i] and c.claim = k.prev and c.closed; end if;
    else
      delete from @.claims c where c.queue = qs[i] and c.claim = cs[i];
      -- One that was closed while this one was made.
      if k.prev is not null then delete from @.claims c where c.queue = qs[i] and c.claim = k.prev and c.closed; end if;
    end if;
  end loop;
end $$;
