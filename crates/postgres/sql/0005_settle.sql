-- Statements here are written so that the planner has no choice, whatever it believes about the tables: it takes them for empty, and on
-- an empty table a filter costs no more than an index condition. `case when … then true end` keeps a condition from becoming an index
-- condition; rows to delete are found by a lateral sub-select with a limit or `offset 0`, and deleted by their ctid: `seq = any(…)` as an
-- index condition looks dearer than as a filter over the whole lane (seen: 13 claims a second instead of 250).

-- Closes claims whose jobs are all gone; the caller's word for it is not taken. The newest row stays as the queue's state; the next
-- claim removes it then.
create function @.close_claims(w uuid, qs int[], cs bigint[]) returns void language plpgsql as $$
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
    else
      delete from @.claims c where c.queue = qs[i] and c.claim = cs[i];
      -- One that was closed while this one was made.
      if k.prev is not null then delete from @.claims c where c.queue = qs[i] and c.claim = k.prev and c.closed; end if;
    end if;
  end loop;
end $$;

-- The verdict `done` for jobs of any claims, one index condition a lane or a range, never a join. `cq, cc` are the claims, `r*` runs of
-- neighbouring seqs, `s*` single ones; `rc, sc` tell the place of their claim in `cc`. Every job must be there: if one is not, or a
-- claim is not this worker's, nothing is changed and `settle` must look at each (CJ010). A claim whose jobs were given back in part has
-- other ranges than its worker remembers, so they are looked at too.
create function @.settle_done(w uuid, cq int[], cc bigint[], rc int[], rl smallint[], rlo bigint[], rhi bigint[], sc int[], sl smallint[], ss bigint[],
  close_q int[], close_c bigint[]) returns void language plpgsql @pinned as $$
declare k @.claims; n bigint; gone bigint; wanted bigint;
begin
  for i in 1 .. cardinality(cc) loop
    select * into k from @.claims c where c.queue = cq[i] and c.claim = cc[i];
    if not found or k.worker <> w or k.closed then raise exception using errcode = 'CJ010', message = 'a verdict is stale'; end if;
    gone := 0; wanted := 0;
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

-- What the verdicts of a batch need to know of their jobs: the history so far, whether an end was asked for, the worker's label.
create function @.peek(w uuid, qs int[], ls smallint[], ss bigint[])
returns table (place bigint, attempt int, extras bytea, cancelled boolean, acknowledged boolean, label text, stamp timestamptz)
language plpgsql @pinned as $$
#variable_conflict use_column
begin
  return query select u.n, coalesce(j.attempt, 0), j.extras, exists (select 1 from @.cancellations c where c.id = j.id),
      exists (select 1 from @.acknowledged a where a.queue = u.q and a.lane = u.l and a.seq = u.s),
      (select x.label from @.workers x where x.id = w), clock_timestamp()
    from unnest(qs, ls, ss) with ordinality as u(q, l, s, n),
      lateral (select y.id, y.attempt, y.extras from @.jobs y where y.queue = u.q and y.lane = u.l and y.seq = u.s limit 1) j;
end $$;

-- Verdicts of every kind, one entry a job. kinds: 0 done, 1 cancel, 2 to scheduled (failed: a retry), 3 to the bin, 4 park, 5 release.
-- Gives the places (from 1) of those that were carried out.
create function @.settle(w uuid, qs int[], cs bigint[], ls smallint[], ss bigint[], kinds smallint[], afters bigint[], failed boolean[], attempts int[],
  new_extras bytea[], reasons text[], close_q int[], close_c bigint[], seen_at timestamptz) returns int[] language plpgsql @pinned set enable_hashjoin = on as $$
declare q int; live boolean[]; applied int[]; back int[]; stamp timestamptz;
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
  select array_agg(g.n::int) into applied from gone g;
  for q in select distinct u.q from unnest(qs, kinds, live) as u(q, kind, live) where u.kind = 5 and u.live order by 1 loop
    back := @.give_back(w, q, array(select u.n::int from unnest(qs, kinds, live) with ordinality as u(q2, kind, live, n) where u.q2 = q and u.kind = 5 and u.live), cs, ls, ss);
    applied := coalesce(applied, '{}') || back;
  end loop;
  if cardinality(close_c) > 0 then perform @.close_claims(w, close_q, close_c); end if;
  return coalesce(applied, '{}');
end $$;

-- Gives held jobs back: they keep their places, as holes of a new state, and leave their claims. Under the queue's lock.
create function @.give_back(w uuid, q int, places int[], cs bigint[], ls smallint[], ss bigint[]) returns int[] language plpgsql as $$
declare s @.claims; c bigint; k @.claims; here int[]; hl smallint[] := '{}'; hlo bigint[] := '{}'; hhi bigint[] := '{}'; n int := 0; done int[] := '{}'; bound xid8 := pg_current_xact_id();
  tl smallint[]; tlo bigint[]; thi bigint[]; al smallint[]; alo bigint[]; ahi bigint[]; spent bigint[] := '{}';
begin
  for c in select distinct cs[p] from unnest(places) as p order by 1 loop
    select * into k from @.claims x where x.queue = q and x.claim = c for update;
    continue when not found or k.worker <> w;
    select array_agg(p) into here from unnest(places) as p
      where cs[p] = c and exists (select 1 from @.jobs y where y.queue = q and y.lane = ls[p] and y.seq = ss[p]);
    continue when here is null;
    -- The rows of the claim that are still there, in order, cut into runs of given back ones and kept ones. A hole may span what is
    -- settled: nothing can come there any more.
    select array_agg(i.lane) filter (where i.given), array_agg(i.lo) filter (where i.given), array_agg(i.hi) filter (where i.given),
           array_agg(i.lane) filter (where not i.given), array_agg(i.lo) filter (where not i.given), array_agg(i.hi) filter (where not i.given)
      into al, alo, ahi, tl, tlo, thi
    from (
      select r.lane, r.place, r.given, min(r.seq) as lo, max(r.seq) as hi from (
        select t.lane, t.place, y.seq, y.given,
          row_number() over (partition by t.place order by y.seq) - row_number() over (partition by t.place, y.given order by y.seq) as island
        from unnest(k.took_lane, k.took_lo, k.took_hi) with ordinality as t(lane, lo, hi, place),
          lateral (select j.seq, exists (select 1 from unnest(here) as p where ls[p] = t.lane and ss[p] = j.seq) as given
            from @.jobs j where j.queue = q and j.lane = t.lane and j.seq >= t.lo and j.seq <= t.hi offset 0) y) r
      group by r.lane, r.place, r.given, r.island order by r.place, min(r.seq)) i;
    update @.claims x set took_lane = coalesce(tl, '{}'), took_lo = coalesce(tlo, '{}'), took_hi = coalesce(thi, '{}') where x.queue = q and x.claim = c;
    if tl is null then spent := spent || c; end if;
    hl := hl || al; hlo := hlo || alo; hhi := hhi || ahi; n := n + cardinality(here); done := done || here;
  end loop;
  if n > 0 then
    s := @.state(q);
    s.closed := s.claim = any(spent);
    s.took_lane := '{}'; s.took_lo := '{}'; s.took_hi := '{}'; s.taken := s.taken - n;
    s.hole_lane := s.hole_lane || hl; s.hole_lo := s.hole_lo || hlo; s.hole_hi := s.hole_hi || hhi;
    s.hole_xmax := s.hole_xmax || array_fill(bound, array[cardinality(hl)]);
    if s.closed then update @.claims x set closed = true where x.queue = q and x.claim = s.claim; end if;
    s := @.push(s, w, bound);
    -- It holds nothing: the next claim removes it.
    update @.claims x set closed = true where x.queue = q and x.claim = s.claim;
    perform @.close_claims(w, array_fill(q, array[cardinality(spent)]), spent);
  end if;
  return done;
end $$;

-- Marks held jobs as never to be delivered again. Gives the places of those that are held.
create function @.acknowledge(w uuid, qs int[], cs bigint[], ls smallint[], ss bigint[]) returns int[] language plpgsql @pinned as $$
declare held int[];
begin
  select array_agg(u.n::int) into held from unnest(qs, cs, ls, ss) with ordinality as u(q, c, l, s, n)
  where exists (select 1 from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi)
      where k.queue = u.q and k.claim = u.c and case when k.worker = w then true end and t.lane = u.l and u.s >= t.lo and u.s <= t.hi)
    and exists (select 1 from @.jobs y where y.queue = u.q and y.lane = u.l and y.seq = u.s);
  insert into @.acknowledged (queue, lane, seq) select qs[p], ls[p], ss[p] from unnest(held) as p order by 1, 2, 3 on conflict do nothing;
  return coalesce(held, '{}');
end $$;

-- Gives back what a worker holds and does not know of: the answer to its claim was lost on the way.
create function @.reconcile(w uuid, known bigint[]) returns int[] language plpgsql @pinned as $$
declare k record; ls smallint[]; ss bigint[]; cs bigint[]; woken int[] := '{}';
begin
  perform @.require_read_committed();
  for k in select c.queue, c.claim from @.claims c where c.worker = w and not c.closed and not (c.claim = any(known)) order by c.queue, c.claim loop
    perform pg_advisory_xact_lock(@class, k.queue);
    select array_agg(j.lane), array_agg(j.seq), array_agg(k.claim) into ls, ss, cs
    from @.claims c, unnest(c.took_lane, c.took_lo, c.took_hi) as t(lane, lo, hi),
      lateral (select y.lane, y.seq from @.jobs y where y.queue = c.queue and y.lane = t.lane and y.seq >= t.lo and y.seq <= t.hi offset 0) j
    where c.queue = k.queue and c.claim = k.claim;
    if ls is null then
      perform @.close_claims(w, array[k.queue], array[k.claim]);
    else
      perform @.give_back(w, k.queue, array(select generate_series(1, cardinality(ls))), cs, ls, ss);
      woken := woken || k.queue;
    end if;
  end loop;
  return woken;
end $$;
