-- How many jobs of a queue wait to be claimed, from the figures. Never too low, unless somebody meddled.
create function @.ready_estimate(q int) returns bigint language plpgsql @pinned as $$
declare s @.claims := @.state(q); gone bigint;
begin
  select f.removed into gone from @.figures f where f.queue = q;
  return greatest(0, @.admitted(q) - s.taken - coalesce(gone, 0));
end $$;

-- The same, counted: the lanes after their cursors, and the holes.
create function @.ready_count(q int) returns bigint language plpgsql @pinned as $$
declare s @.claims := @.state(q); n bigint;
begin
  select coalesce(sum(c.n), 0) into n from (
    select l.lane, l.cur + 1 as lo, 9223372036854775807 as hi from unnest(s.cursor) with ordinality as l(cur, lane)
    union all
    select h.lane + 1, h.lo, h.hi from unnest(s.hole_lane, s.hole_lo, s.hole_hi) as h(lane, lo, hi)) r,
    lateral (select count(*) as n from @.jobs j where j.queue = q and j.lane = r.lane - 1 and j.seq >= r.lo and j.seq <= r.hi) c;
  return n;
end $$;

-- Refuses, or tells that the oldest must make room. From half the limit on, enqueues of this queue take turns until they commit, or
-- several at once could pass the limit together; the exact count is made only when the cheap figure is over the limit.
create function @.over_limit(q int, more int, max_length bigint, drop_oldest boolean) returns boolean language plpgsql as $$
declare n bigint := @.ready_estimate(q) + more;
begin
  if n <= max_length / 2 then return false; end if;
  if drop_oldest then return n > max_length; end if;
  perform pg_advisory_xact_lock(@class, -1000 - q);
  if @.ready_estimate(q) + more <= max_length then return false; end if;
  n := @.ready_count(q);
  if n + more <= max_length then return false; end if;
  raise exception using errcode = 'CJ002', message = 'queue is full',
    detail = (select x.name from @.queues x where x.id = q), hint = n || ' ' || max_length;
end $$;

-- Stores jobs of one queue and one lane, due now. Returns whether the oldest must make room.
-- The transaction gets its id before the batch its number, so whoever sees a later batch knows that this one is in progress.
create function @.enqueue_now(q int, l smallint, ids uuid[], tasks text[], payloads bytea[], ttls bigint[], extras bytea[])
returns boolean language plpgsql @pinned as $$
declare s record; base bigint; stamp timestamptz; crowded boolean := false; n int := cardinality(ids);
begin
  select x.ttl, x.max_length, x.drop_oldest into s from @.queues x where x.id = q;
  if not found then raise exception using errcode = 'CJ001', message = 'no such queue', detail = q; end if;
  if s.max_length is not null then crowded := @.over_limit(q, n, s.max_length, s.drop_oldest); end if;
  perform pg_current_xact_id();
  base := nextval(@.lane_sequence(q, l)) << 16;
  stamp := clock_timestamp();
  insert into @.jobs (queue, lane, seq, id, enqueued_at, expires_at, task, payload, extras)
    select q, l, base + u.n - 1, u.id, stamp, stamp + coalesce(u.ttl, s.ttl) * interval '1 microsecond', u.task, u.payload, u.extras
    from unnest(ids, tasks, payloads, ttls, extras) with ordinality as u(id, task, payload, ttl, extras, n);
  perform @.admit(q, n);
  return crowded;
end $$;

-- Stores jobs of any queues, lanes and times. Gives the places (from 1) of those that are new, and the queues whose oldest must make
-- room.
create function @.enqueue_all(qs int[], lanes smallint[], ids uuid[], tasks text[], payloads bytea[], delays bigint[], ats timestamptz[],
  ttls bigint[], extras bytea[], once boolean[], out fresh int[], out crowded int[]) language plpgsql @pinned as $$
declare s record; g record; base bigint; stamp timestamptz; fresh_ids uuid[];
begin
  perform pg_current_xact_id();
  stamp := clock_timestamp();
  crowded := '{}';
  if true = any(once) then
    with told as (insert into @.remembered (id, at)
      select distinct u.id, stamp from unnest(ids, once) as u(id, once) where u.once order by u.id
      on conflict (id) do nothing returning id)
    select array_agg(t.id) into fresh_ids from told t;
    select array_agg(f.n order by f.n) into fresh from (
      select u.n::int as n from unnest(ids, once) with ordinality as u(id, once, n) where not u.once
      union all
      select min(u.n)::int from unnest(ids, once) with ordinality as u(id, once, n) where u.once and u.id = any(fresh_ids) group by u.id) f;
  else
    select array_agg(n) into fresh from generate_series(1, cardinality(ids)) n;
  end if;
  fresh := coalesce(fresh, '{}');
  for s in select x.id, x.max_length, x.drop_oldest, count(*)::int as more
    from unnest(fresh) as f(n), @.queues x
    where x.id = qs[f.n] and x.max_length is not null
      and coalesce(ats[f.n], stamp + delays[f.n] * interval '1 microsecond', stamp) <= stamp
    group by x.id order by x.id
  loop
    if @.over_limit(s.id, s.more, s.max_length, s.drop_oldest) then crowded := crowded || s.id; end if;
  end loop;
  insert into @.scheduled (queue, priority, attempt, deliveries, id, enqueued_at, due_at, expires_at, since, task, payload, extras)
    select d.queue, d.lane, 0, 0, d.id, stamp, d.due, d.due + coalesce(d.ttl, x.ttl) * interval '1 microsecond', stamp, d.task,
      d.payload, d.extras
    from (select f.n, qs[f.n] as queue, lanes[f.n] as lane, ids[f.n] as id, tasks[f.n] as task, payloads[f.n] as payload,
        extras[f.n] as extras, ttls[f.n] as ttl, coalesce(ats[f.n], stamp + delays[f.n] * interval '1 microsecond') as due
      from unnest(fresh) as f(n)) d, @.queues x
    where d.due > stamp and x.id = d.queue order by d.n;
  insert into @.tally (queue, deferred, scheduled)
    select d.queue, count(*), count(*) from (select qs[f.n] as queue, coalesce(ats[f.n], stamp + delays[f.n] * interval '1 microsecond') as due
      from unnest(fresh) as f(n)) d where d.due > stamp group by d.queue;
  for g in select d.queue, d.lane, array_agg(d.n order by d.n) as ns
    from (select f.n, qs[f.n] as queue, lanes[f.n] as lane, coalesce(ats[f.n], stamp + delays[f.n] * interval '1 microsecond', stamp) as due
      from unnest(fresh) as f(n)) d where d.due <= stamp group by d.queue, d.lane
  loop
    base := nextval(@.lane_sequence(g.queue, g.lane)) << 16;
    insert into @.jobs (queue, lane, seq, id, enqueued_at, expires_at, task, payload, extras)
      select g.queue, g.lane, base + u.place - 1, ids[u.n], stamp, stamp + coalesce(ttls[u.n], x.ttl) * interval '1 microsecond', tasks[u.n],
        payloads[u.n], extras[u.n]
      from unnest(g.ns) with ordinality as u(n, place), lateral (select y.ttl from @.queues y where y.id = g.queue limit 1) x;
    perform @.admit(g.queue, cardinality(g.ns));
  end loop;
end $$;

-- A UUIDv7 by the server's clock.
create function @.new_id() returns uuid language sql volatile as $$
  select encode(set_byte(set_byte(
    substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) || substring(uuid_send(gen_random_uuid()) from 7),
    6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 8, (get_byte(uuid_send(gen_random_uuid()), 8) & 63) | 128), 'hex')::uuid
$$;

-- The entry for every language, mapper and trigger. Runs in the caller's transaction: the job is there after the commit and never was
-- after a rollback. Workers find it at their next poll, or at once if the caller wakes them: select wake('queue').
create function @.enqueue(queue text, task text, args jsonb default '{}', priority int default 0, delay interval default null,
  run_at timestamptz default null, ttl interval default null, id uuid default null, max_payload int default 1048576)
returns uuid language plpgsql as $$
declare q int; job uuid := coalesce(id, @.new_id()); body bytea; done record;
begin
  select x.id into q from @.queues x where x.name = enqueue.queue;
  if not found then raise exception using errcode = 'CJ001', message = 'no such queue: ' || coalesce(enqueue.queue, 'null'), detail = coalesce(enqueue.queue, 'null'),
    hint = 'declare it with: select declare_queue(name), or start a worker that serves it'; end if;
  if task is null or task !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$' then raise exception using errcode = 'CJ005', message = 'task name', detail = coalesce(left(task, 120), 'null'),
    hint = '1 to 200 ASCII letters, digits and _ - . : /, first a letter, digit or _'; end if;
  if args is null or jsonb_typeof(args) <> 'object' then raise exception using errcode = 'CJ005', message = 'arguments', detail = coalesce(left(args::text, 120), 'null'),
    hint = 'they must be a JSON object, such as {"path": "a.png"}'; end if;
  if priority is null or priority not between 0 and 9 then raise exception using errcode = 'CJ005', message = 'priority', detail = coalesce(priority::text, 'null'),
    hint = 'allowed are 0 to 9, higher first'; end if;
  if delay < interval '0' then raise exception using errcode = 'CJ005', message = 'delay', detail = delay, hint = 'it must not be negative'; end if;
  if ttl < interval '0' then raise exception using errcode = 'CJ005', message = 'ttl', detail = ttl, hint = 'it must not be negative'; end if;
  body := '\x02'::bytea || convert_to(args::text, 'UTF8');
  if octet_length(body) > max_payload then raise exception using errcode = 'CJ003', message = 'payload too large', detail = task,
    hint = octet_length(body) || ' ' || max_payload; end if;
  select * into done from @.enqueue_all(array[q], array[priority::smallint], array[job], array[task], array[body],
    array[(extract(epoch from delay) * 1000000)::bigint], array[run_at], array[(extract(epoch from ttl) * 1000000)::bigint], array[null::bytea],
    array[id is not null]);
  return job;
end $$;

-- Tells waiting workers to look. Outside transactions that do other work: a notifying transaction takes a lock of the whole server
-- when it commits.
create function @.wake(payload text) returns void language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  perform pg_notify('@channel', payload);
end $$;
