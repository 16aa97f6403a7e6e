-- Where due jobs begin: what is due before it was moved, and must not be walked over again. A few seconds before the mark, for clocks
-- that are set back a little; promote looks at everything now and then.
create function @.due_from() returns timestamptz language plpgsql stable as
$$ begin return to_timestamp(coalesce((select k.mark from @.marks k where k.name = 'promote'), 0) / 1000000.0) - interval '5 seconds'; end $$;

-- Takes jobs from the given lanes, in their order, into the claim `s`. Runs under the queue's lock, writes nothing.
-- New holes get no bound here: it must be an id that is given after every scan of the transaction. `first`: nothing was taken yet, so
-- a job comes whatever its size. Called from pinned functions only.
create function @.take(inout s @.claims, inout want int, inout bytes bigint, inout expired boolean, lanes smallint[], first boolean,
  stamp timestamptz) language plpgsql as $$
declare
  xmin_now xid8; n int; i int := 1; m int; total bigint; full_up boolean; cut boolean := false; fm bigint; x bigint; lo bigint; gl smallint[]; glo bigint[];
  ghi bigint[]; gn int[]; gstarts int[]; gx boolean; rk int[]; rs bigint[]; rx boolean;
  sl smallint[]; slo bigint[]; shi bigint[]; sx xid8[]; sh boolean[];
  kl smallint[] := '{}'; klo bigint[] := '{}'; khi bigint[] := '{}'; kx xid8[] := '{}';
begin
  if want <= 0 then return; end if;
  if cardinality(s.hole_lane) = 0 then
    -- The usual case. A batch begins with index 0, so counting those tells whether one is missing.
    select array_agg(g.lane order by g.place), array_agg(g.lo order by g.place), array_agg(g.hi order by g.place), array_agg(g.n order by g.place),
        array_agg(g.starts order by g.place), sum(g.size), bool_or(g.expired)
      into gl, glo, ghi, gn, gstarts, total, gx
    from (
      select t.place, t.lane, min(t.seq) as lo, max(t.seq) as hi, count(*)::int as n, (count(*) filter (where t.seq & 65535 = 0))::int as starts,
        sum(t.size) as size, bool_or(t.expired) as expired
      from (
        select l.place, l.lane, j.seq, j.size, j.expired
        from unnest(lanes) with ordinality as l(lane, place),
          lateral (select y.seq, octet_length(y.payload) as size, y.expires_at <= stamp as expired from @.jobs y
            where y.queue = s.queue and y.lane = l.lane and y.seq > s.cursor[l.lane + 1] order by y.seq limit want) j
        limit want) t
      group by t.place, t.lane) g;
    if gl is null then return; end if;
    full_up := total > bytes;
    for k in 1 .. cardinality(gl) loop
      exit when full_up;
      full_up := gstarts[k] < (ghi[k] >> 16) - (s.cursor[gl[k] + 1] >> 16);
    end loop;
    if not full_up then
      for k in 1 .. cardinality(gl) loop
        s.took_lane := s.took_lane || gl[k]; s.took_lo := s.took_lo || glo[k]; s.took_hi := s.took_hi || ghi[k];
        s.cursor[gl[k] + 1] := ghi[k]; s.taken := s.taken + gn[k]; want := want - gn[k];
      end loop;
      bytes := bytes - total; expired := expired or coalesce(gx, false);
      return;
    end if;
  end if;

  -- Something is missing, was given back, or is too large: row by row, the holes of a lane before what comes after its cursor.
  xmin_now := pg_snapshot_xmin(pg_current_snapshot());
  select array_agg(o.lane), array_agg(o.lo), array_agg(o.hi), array_agg(o.x), array_agg(o.hole) into sl, slo, shi, sx, sh from (
    select * from (
      select l.lane, l.place, s.cursor[l.lane + 1] + 1 as lo, 9223372036854775807 as hi, null::xid8 as x, false as hole
      from unnest(lanes) with ordinality as l(lane, place)
      union all
      select h.lane, array_position(lanes, h.lane), h.lo, h.hi, h.x, true
      from unnest(s.hole_lane, s.hole_lo, s.hole_hi, s.hole_xmax) as h(lane, lo, hi, x) where h.lane = any(lanes)) a
    order by a.place, a.hole desc, a.lo) o;
  select array_agg(c.k order by c.k, c.seq), array_agg(c.seq order by c.k, c.seq), max(c.run), bool_or(c.expired), count(*) into rk, rs, total, rx, n
  from (
    select t.k, t.seq, t.expired, sum(t.size) over w as run, row_number() over w as place
    from (
      select u.k::int as k, j.seq, j.size, j.expired
      from unnest(sl, slo, shi) with ordinality as u(lane, lo, hi, k),
        lateral (select y.seq, octet_length(y.payload) as size, y.expires_at <= stamp as expired from @.jobs y
          where y.queue = s.queue and y.lane = u.lane and y.seq >= u.lo and y.seq <= u.hi order by y.seq limit want) j
      limit want) t
    window w as (order by t.k, t.seq)) c
  where (first and c.place = 1) or c.run <= bytes;
  -- Full: the last source may have more than was looked at. A job that does not fit the bytes ends the whole claim: nothing passes it.
  full_up := n >= want;
  if not full_up then
    cut := n < (select count(*) from (
      select 1 from unnest(sl, slo, shi) as u(lane, lo, hi),
        lateral (select 1 from @.jobs y where y.queue = s.queue and y.lane = u.lane and y.seq >= u.lo and y.seq <= u.hi limit n + 1) j
      limit n + 1) more);
    full_up := cut;
  end if;
  m := cardinality(sl);
  for k in 1 .. m loop
    lo := null;
    fm := case when slo[k] & 65535 = 0 then slo[k] >> 16 else (slo[k] >> 16) + 1 end;          -- the first batch that may be missing
    x := null;
    while i <= n and rk[i] = k loop
      x := rs[i];
      if (x >> 16) > fm then
        kl := kl || sl[k]; klo := klo || (fm << 16); khi := khi || (((x >> 16) << 16) - 1); kx := kx || sx[k];
        if lo is not null then s.took_lane := s.took_lane || sl[k]; s.took_lo := s.took_lo || lo; s.took_hi := s.took_hi || rs[i - 1]; end if;
        lo := x;
      end if;
      lo := coalesce(lo, x);
      fm := (x >> 16) + 1;
      i := i + 1;
    end loop;
    if lo is not null then s.took_lane := s.took_lane || sl[k]; s.took_lo := s.took_lo || lo; s.took_hi := s.took_hi || x; end if;
    if sh[k] then
      if x is null then
        continue when not (full_up and i > n) and sx[k] is not null and sx[k] <= xmin_now;     -- rolled back: forget it
        kl := kl || sl[k]; klo := klo || slo[k]; khi := khi || shi[k]; kx := kx || sx[k];
      elsif full_up and i > n then
        if x < shi[k] then kl := kl || sl[k]; klo := klo || (x + 1); khi := khi || shi[k]; kx := kx || sx[k]; end if;
      elsif fm << 16 <= shi[k] then
        kl := kl || sl[k]; klo := klo || (fm << 16); khi := khi || shi[k]; kx := kx || sx[k];
      end if;
    elsif x is not null then
      s.cursor[sl[k] + 1] := x;
    end if;
  end loop;
  -- Holes of lanes that were not asked for stay.
  for k in 1 .. cardinality(s.hole_lane) loop
    continue when s.hole_lane[k] = any(lanes);
    kl := kl || s.hole_lane[k]; klo := klo || s.hole_lo[k]; khi := khi || s.hole_hi[k]; kx := kx || s.hole_xmax[k];
  end loop;
  s.hole_lane := kl; s.hole_lo := klo; s.hole_hi := khi; s.hole_xmax := kx;
  s.taken := s.taken + n; want := want - n; bytes := case when cut then 0 else bytes - coalesce(total, 0) end;
  expired := expired or coalesce(rx, false);
end $$;

-- Writes the next state of a queue on top of the newest. `s` comes from the newest row, under the lock.
create function @.push(inout s @.claims, w uuid, bound xid8) language plpgsql as $$
declare below bigint := s.claim; was_closed boolean := s.closed; extra int := cardinality(s.hole_lane) - @max_holes;
begin
  s.prev := below; s.closed := false; s.worker := w; s.taken_at := clock_timestamp();
  s.claim := nextval('@.claim_number') << 20 | floor(random() * 1048576)::bigint;
  s.hole_xmax := array_replace(s.hole_xmax, null, bound);
  if extra > 0 then
    -- Something holds back the oldest transaction for long. Holes must not pile up: the full check finds what was in these.
    select array_agg(h.lane), array_agg(h.lo), array_agg(h.hi), array_agg(h.x) into s.hole_lane, s.hole_lo, s.hole_hi, s.hole_xmax
    from (select * from unnest(s.hole_lane, s.hole_lo, s.hole_hi, s.hole_xmax) as u(lane, lo, hi, x) order by u.x desc limit @max_holes) h;
  end if;
  insert into @.claims (queue, claim, worker, prev, closed, taken_at, took_lane, took_lo, took_hi, cursor, hole_lane, hole_lo, hole_hi, hole_xmax, taken)
    values (s.queue, s.claim, s.worker, s.prev, false, s.taken_at, s.took_lane, s.took_lo, s.took_hi, s.cursor, s.hole_lane, s.hole_lo, s.hole_hi,
      s.hole_xmax, s.taken);
  if was_closed then delete from @.claims k where k.queue = s.queue and k.claim = below and k.closed; end if;
end $$;

-- Moves the jobs of a fresh claim whose time to live has passed out of it.
create function @.expire_taken(s @.claims) returns void language plpgsql as $$
declare r record; drop_them boolean; n int; gone int := 0; stamp timestamptz := clock_timestamp();
begin
  select x.drop_expired into drop_them from @.queues x where x.id = s.queue;
  for r in select * from unnest(s.took_lane, s.took_lo, s.took_hi) as u(lane, lo, hi) loop
    with out_of as (delete from @.jobs j where j.queue = s.queue and j.lane = r.lane and j.seq >= r.lo and j.seq <= r.hi
        and case when j.expires_at <= stamp then true end
      returning j.queue, coalesce(j.priority, j.lane) as priority, coalesce(j.attempt, 0) as attempt, coalesce(j.deliveries, 0) as deliveries, j.id,
        j.enqueued_at, coalesce(j.due_at, j.enqueued_at) as due_at, j.expires_at, j.task, j.payload, j.extras),
    buried as (insert into @.dead (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras, reason)
      select o.queue, o.priority, o.attempt, o.deliveries, o.id, o.enqueued_at, o.due_at, o.expires_at, stamp, o.task, o.payload, o.extras, 'expired'
      from out_of o where not drop_them)
    select count(*) into n from out_of;
    gone := gone + n;
  end loop;
  if gone > 0 then
    insert into @.tally (queue, settled, dropped, buried, dead)
      values (s.queue, gone, case when drop_them then gone end, case when not drop_them then gone end, case when not drop_them then gone end);
  end if;
end $$;

-- Hands out jobs. One row a job; rows without a claim are messages: seq 1: parked jobs of a known task wait and come first (adopt
-- them), 2: look again, 3: due jobs must be moved to their queues first (promote; not here, since the transaction would have its id
-- before it scans).
create function @.claim(w uuid, qs int[], shares int[], most int, max_bytes bigint, suspects boolean, tasks text[], with_due boolean)
returns table (claim bigint, queue int, lane smallint, seq bigint, id uuid, task text, payload bytea, attempt int, deliveries int, priority smallint,
  enqueued_at timestamptz, due_at timestamptz, expires_at timestamptz, extras bytea)
language plpgsql @pinned as $$
#variable_conflict use_column
declare
  s @.claims; a @.claims; todo @.claims[] := '{}'; known @.claims[]; has_suspect boolean[]; has_ready boolean[]; i int; want int := most; part int; left_over int;
  bytes bigint := max_bytes; expired boolean := false; locked boolean[] := array_fill(false, array[cardinality(qs)]); first boolean := true; again boolean := false;
  stamp timestamptz := clock_timestamp(); own xid8; r record; due_from timestamptz;
begin
  perform @.require_read_committed();
  perform set_config('synchronous_commit', 'off', true);   -- the lock must not wait for the disk; a claim lost in a crash of the server is a redelivery
  if with_due then due_from := @.due_from(); end if;
  if with_due and exists (select 1 from @.scheduled y where y.due_at >= due_from and y.due_at <= stamp limit 1) then
    return query select null::bigint, 0, 0::smallint, 3::bigint, null::uuid, null::text, null::bytea, 0, 0, 0::smallint, stamp, stamp, stamp, null::bytea;
    return;
  end if;
  if cardinality(tasks) > 0 and exists (select 1 from @.parked limit 1) and exists (select 1 from @.parked p where p.waits_for = any(tasks) limit 1) then
    return query select null::bigint, 0, 0::smallint, 1::bigint, null::uuid, null::text, null::bytea, 0, 0, 0::smallint, stamp, stamp, stamp, null::bytea;
    return;
  end if;
  -- A look without locks: which queues have anything. What it misses comes with the next wake-up.
  select array_agg(coalesce(l.suspect, false)), array_agg(coalesce(l.ready, false)) into has_suspect, has_ready
  from unnest(qs) with ordinality as u(q, n) left join lateral (
    select suspects and (10 = any(k.hole_lane) or exists (select 1 from @.jobs y where y.queue = u.q and y.lane = 10 and y.seq > coalesce(k.cursor[11], 0))) as suspect,
      (k.hole_lane <> '{}' or exists (select 1 from unnest('{9,8,7,6,5,4,3,2,1,0}'::smallint[]) as v(lane),
        lateral (select 1 from @.jobs y where y.queue = u.q and y.lane = v.lane and y.seq > coalesce(k.cursor[v.lane + 1], 0) limit 1) one)) as ready
    from @.queues x left join lateral (select c.cursor, c.hole_lane from @.claims c where c.queue = u.q order by c.claim desc limit 1) k on true
    where x.id = u.q and not x.paused) l on true;
  known := array_fill(null::@.claims, array[cardinality(qs)]);

  for round in 0..2 loop                                    -- 0: one suspect, 1: each queue its share, 2: what the shares left free
    for i in 1 .. cardinality(qs) loop
      exit when want <= 0 or (want < most and bytes <= 0);
      continue when not case when round = 0 then has_suspect[i] else has_ready[i] end;
      if not locked[i] then
        if first then
          perform pg_advisory_xact_lock(@class, qs[i]);     -- own statement: the next ones read a snapshot taken after it
          first := false;
          if not exists (select 1 from @.workers x where x.id = w and not x.dead) then
            raise exception using errcode = 'CJ004', message = 'the lease is lost';
          end if;
        elsif not pg_try_advisory_xact_lock(@class, qs[i]) then
          again := true;                                    -- waiting with one queue's lock in hand could end in a deadlock
          has_ready[i] := false; has_suspect[i] := false;
          continue;
        end if;
        locked[i] := true;
        known[i] := @.state(qs[i]);
      end if;
      s := known[i];
      s.took_lane := '{}'; s.took_lo := '{}'; s.took_hi := '{}';
      part := case round when 0 then 1 when 1 then least(shares[i], want) else want end;
      left_over := part;
      select t.s as state, t.want, t.bytes, t.expired into r
        from @.take(s, left_over, bytes, expired, case when round = 0 then '{10}'::smallint[] else '{9,8,7,6,5,4,3,2,1,0,11}'::smallint[] end,
          want = most, stamp) t;
      s := r.state; left_over := r.want; bytes := r.bytes; expired := r.expired;
      if left_over > 0 and round > 0 and bytes > 0 then has_ready[i] := false; end if;
      continue when left_over = part;
      want := want - (part - left_over);
      if round = 2 and cardinality(todo) > 0 then
        -- The queue's own claim of the first round grows: one row a queue.
        for j in 1 .. cardinality(todo) loop
          if todo[j].queue = qs[i] and not (10::smallint = any(todo[j].took_lane)) then
            a := todo[j];
            s.took_lane := a.took_lane || s.took_lane; s.took_lo := a.took_lo || s.took_lo; s.took_hi := a.took_hi || s.took_hi;
            todo[j] := s; known[i] := s;
            s := null;
            exit;
          end if;
        end loop;
        continue when s is null;
      end if;
      todo := todo || s;
      known[i] := s;
      exit when round = 0;
    end loop;
    exit when want <= 0 or (want < most and bytes <= 0);
  end loop;

  if first and not exists (select 1 from @.workers x where x.id = w and not x.dead) then
    raise exception using errcode = 'CJ004', message = 'the lease is lost';
  end if;
  if cardinality(todo) > 0 then
    own := pg_current_xact_id();                            -- given after every scan: above any transaction that a hole may stand for
    for i in 1 .. cardinality(todo) loop
      s := todo[i];
      for j in 1 .. i - 1 loop                              -- a suspect's claim of the same queue came before
        if todo[j].queue = s.queue then s.claim := todo[j].claim; s.closed := false; end if;
      end loop;
      s := @.push(s, w, own);
      todo[i] := s;
      if expired then perform @.expire_taken(s); end if;
    end loop;
    foreach s in array todo loop
      return query select s.claim, s.queue, j.lane, j.seq, j.id, j.task, j.payload, coalesce(j.attempt, 0), coalesce(j.deliveries, 0), coalesce(j.priority, j.lane),
          j.enqueued_at, coalesce(j.due_at, j.enqueued_at), j.expires_at, j.extras
        from unnest(s.took_lane, s.took_lo, s.took_hi) as r(lane, lo, hi),
          lateral (select y.lane, y.seq, y.id, y.task, y.payload, y.attempt, y.deliveries, y.priority, y.enqueued_at, y.due_at, y.expires_at, y.extras
            from @.jobs y where y.queue = s.queue and y.lane = r.lane and y.seq >= r.lo and y.seq <= r.hi order by y.seq) j;
    end loop;
  end if;
  if again or expired then
    return query select null::bigint, 0, 0::smallint, 2::bigint, null::uuid, null::text, null::bytea, 0, 0, 0::smallint, stamp, stamp, stamp, null::bytea;
  end if;
end $$;

-- Takes parked jobs of the given tasks straight into claims. Their lane is 11 and its cursor passes them at once, so that no worker
-- that lacks the task meets them.
create function @.adopt(w uuid, most int, max_bytes bigint, tasks text[])
returns table (claim bigint, queue int, lane smallint, seq bigint, id uuid, task text, payload bytea, attempt int, deliveries int, priority smallint,
  enqueued_at timestamptz, due_at timestamptz, expires_at timestamptz, extras bytea)
language plpgsql @pinned as $$
#variable_conflict use_column
declare s @.claims; base bigint; g record; n int; stamp timestamptz := clock_timestamp();
begin
  perform @.require_read_committed();
  perform set_config('synchronous_commit', 'off', true);
  for g in
    select c.queue, array_agg(c.n order by c.n) as ns from (
      select f.queue, f.n, sum(f.size) over (order by f.n) as run, row_number() over (order by f.n) as place from (
        select p.queue, p.n, octet_length(p.payload) as size from @.parked p, @.queues x
        where p.waits_for = any(tasks) and x.id = p.queue and not x.paused and (p.expires_at is null or p.expires_at > stamp)
        order by p.n limit most) f) c
    where c.place = 1 or c.run <= max_bytes group by c.queue order by c.queue      -- everybody adopts in this order: no deadlock
  loop
    perform pg_advisory_xact_lock(@class, g.queue);
    if not exists (select 1 from @.workers x where x.id = w and not x.dead) then
      raise exception using errcode = 'CJ004', message = 'the lease is lost';
    end if;
    s := @.state(g.queue);
    perform pg_current_xact_id();
    base := nextval(@.lane_sequence(g.queue, 11)) << 16;
    with gone as (delete from @.parked p where p.n = any(g.ns)
      returning p.n, p.priority, p.attempt, p.deliveries, p.id, p.enqueued_at, p.expires_at, p.task, p.payload, p.extras)
    insert into @.jobs (queue, lane, seq, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, task, payload, extras)
      select g.queue, 11, base + row_number() over (order by o.n) - 1, o.priority, nullif(o.attempt, 0), nullif(o.deliveries, 0), o.id, o.enqueued_at, stamp,
        o.expires_at, o.task, o.payload, o.extras from gone o;
    get diagnostics n = row_count;
    continue when n = 0;
    perform @.admit(g.queue, n);
    insert into @.tally (queue, readmitted, parked) values (g.queue, n, -n);
    s.took_lane := '{11}'; s.took_lo := array[base]; s.took_hi := array[base + n - 1];
    s.cursor[12] := base + n - 1; s.taken := s.taken + n;
    s := @.push(s, w, pg_current_xact_id());
    return query select s.claim, s.queue, y.lane, y.seq, y.id, y.task, y.payload, coalesce(y.attempt, 0), coalesce(y.deliveries, 0), y.priority, y.enqueued_at,
        coalesce(y.due_at, y.enqueued_at), y.expires_at, y.extras
      from @.jobs y where y.queue = s.queue and y.lane = 11 and y.seq >= base and y.seq < base + n order by y.seq;
  end loop;
end $$;
