-- Makes a queue with its sequences; a definer's function, so that a program needs no right to create anything.
create function @.declare_queue(queue_name text, out queue int, out created boolean) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
begin
  select q.id into queue from @.queues q where q.name = queue_name;
  created := not found;
  if not created then return; end if;
  if queue_name !~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$' then
    raise exception using errcode = 'CJ005', message = 'queue name', detail = queue_name,
      hint = '1 to 100 ASCII letters, digits and _ - . :, first a letter or digit';
  end if;
  insert into @.queues (name) values (queue_name) on conflict (name) do nothing returning id into queue;
  if not found then
    select q.id into queue from @.queues q where q.name = queue_name;
    created := false;
    return;
  end if;
  for lane in 0..11 loop
    execute format('create sequence @.%I', 'lane_' || queue || '_' || lane);
  end loop;
  execute format('create sequence @.%I', 'admitted_' || queue);
  execute format('create sequence @.%I', 'admitted64_' || queue);
  insert into @.totals (queue) values (queue);
end $$;

-- Not in `language sql`: such a function is parsed and planned at each call when it cannot be inlined.
create function @.lane_sequence(q int, l int) returns regclass language plpgsql immutable parallel safe as
$$ begin return ('@.lane_' || q || '_' || l)::regclass; end $$;

-- Counts jobs into `jobs`, by ones and by sixty-fours. A sequence has no transaction: nobody waits for anybody, and a rolled back
-- enqueue leaves the figure too high until the queue is empty or checked.
create function @.admit(q int, n int) returns void language plpgsql as $$
declare s regclass;
begin
  if n & 63 > 0 then
    s := ('@.admitted_' || q)::regclass;
    perform nextval(s) from generate_series(1, n & 63);
  end if;
  if n >= 64 then
    s := ('@.admitted64_' || q)::regclass;
    perform nextval(s) from generate_series(1, n >> 6);
  end if;
end $$;

create function @.admitted(q int) returns bigint language plpgsql as $$
declare n bigint;
begin
  execute format('select (select case when is_called then last_value else 0 end from @.%I)
    + 64 * (select case when is_called then last_value else 0 end from @.%I)', 'admitted_' || q, 'admitted64_' || q) into n;
  return n;
end $$;

create view @.figures as
select q.id as queue,
       coalesce(sum(t.deferred), 0)::bigint as deferred, coalesce(sum(t.readmitted), 0)::bigint as readmitted,
       coalesce(sum(t.removed), 0)::bigint as removed, coalesce(sum(t.settled), 0)::bigint as settled,
       coalesce(sum(t.done), 0)::bigint as done, coalesce(sum(t.retried), 0)::bigint as retried,
       coalesce(sum(t.buried), 0)::bigint as buried, coalesce(sum(t.redelivered), 0)::bigint as redelivered,
       coalesce(sum(t.cancelled), 0)::bigint as cancelled, coalesce(sum(t.dropped), 0)::bigint as dropped,
       coalesce(sum(t.scheduled), 0)::bigint as scheduled, coalesce(sum(t.parked), 0)::bigint as parked,
       coalesce(sum(t.dead), 0)::bigint as dead
from @.queues q left join (
  select queue, deferred, readmitted, removed, settled, done, retried, buried, redelivered, cancelled, dropped, scheduled, parked, dead
  from @.totals
  union all
  select queue, deferred, readmitted, removed, settled, done, retried, buried, redelivered, cancelled, dropped, scheduled, parked, dead
  from @.tally where n > coalesce((select mark from @.marks where name = 'tally'), 0)
) t on t.queue = q.id group by q.id;

-- The newest state of a queue; a queue that nobody ever claimed from has the one that everything starts with. Called from pinned functions only.
create function @.state(q int) returns @.claims language plpgsql as $$
declare s @.claims;
begin
  select * into s from @.claims k where k.queue = q order by k.claim desc limit 1;
  if not found then
    s.queue := q; s.closed := false; s.taken := 0; s.cursor := array_fill(0::bigint, array[12]);
    s.took_lane := '{}'; s.took_lo := '{}'; s.took_hi := '{}';
    s.hole_lane := '{}'; s.hole_lo := '{}'; s.hole_hi := '{}'; s.hole_xmax := '{}';
  end if;
  return s;
end $$;

-- Everything that reads a state and writes the next must see what was committed before it got the lock.
create function @.require_read_committed() returns void language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'CJ006', message = 'transaction isolation', detail = current_setting('transaction_isolation'),
      hint = 'it must be read committed';
  end if;
end $$;
