-- Programs from this version of the schema on work with this one: old and new workers run side by side. Null: none older.
alter table @.migrations add column if not exists oldest bigint;

-- How many jobs wait for each task, kept as changes, so that looking costs the same whatever is parked.
create table @.parked_changes (
  waits_for text collate "C" not null,
  jobs      bigint not null
);
create table @.parked_totals (
  waits_for text collate "C" primary key,
  jobs      bigint not null
) with (fillfactor = 50);
insert into @.parked_totals (waits_for, jobs) select p.waits_for, count(*) from @.parked p group by p.waits_for;

create function @.count_parked() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into @.parked_changes (waits_for, jobs) select c.waits_for, count(*) from changed c group by c.waits_for;
  else
    insert into @.parked_changes (waits_for, jobs) select c.waits_for, -count(*) from changed c group by c.waits_for;
  end if;
  return null;
end $$;
create trigger parked_came after insert on @.parked referencing new table as changed for each statement execute function @.count_parked();
create trigger parked_went after delete on @.parked referencing old table as changed for each statement execute function @.count_parked();

-- Adds the changes up. Many are rare: jobs are parked while a deploy is under way.
create function @.roll_up_parked() returns void language plpgsql as $$
begin
  if not exists (select 1 from @.parked_changes limit 1) or not pg_try_advisory_xact_lock(@class, -5) then return; end if;
  with gone as (delete from @.parked_changes returning waits_for, jobs),
  added as (select g.waits_for, sum(g.jobs)::bigint as jobs from gone g group by g.waits_for)
  insert into @.parked_totals (waits_for, jobs) select a.waits_for, a.jobs from added a
    on conflict (waits_for) do update set jobs = parked_totals.jobs + excluded.jobs;
  delete from @.parked_totals t where t.jobs = 0;
end $$;

create view @.parked_counts as
select c.waits_for, sum(c.jobs)::bigint as jobs from (
  select waits_for, jobs from @.parked_totals union all select waits_for, jobs from @.parked_changes) c
group by c.waits_for having sum(c.jobs) > 0;

-- The full check: when it is due, what the last one cost (microseconds), and how many jobs it has given back in all.
create table @.patrol (
  id      int         primary key check (id = 1),
  due_at  timestamptz not null,
  cost    bigint      not null default 0,
  found   bigint      not null default 0
);
insert into @.patrol (id, due_at) values (1, clock_timestamp() + interval '10 minutes');

-- Whether the full check is to begin now, and by this caller alone; otherwise in how many microseconds to ask again.
create function @.patrol_begin(out granted boolean, out wait bigint) language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  -- Should the caller die on the way, another begins anew after this time.
  update @.patrol p set due_at = clock_timestamp() + interval '10 minutes' where p.id = 1 and p.due_at <= clock_timestamp();
  granted := found;
  select greatest(0, extract(epoch from p.due_at - clock_timestamp()) * 1000000)::bigint into wait from @.patrol p where p.id = 1;
end $$;

-- Never more than a hundredth of the time.
create function @.patrol_end(took bigint, jobs bigint) returns void language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  update @.patrol p set cost = took, found = p.found + jobs,
    due_at = clock_timestamp() + least(greatest(took * 100 * interval '1 microsecond', interval '10 minutes'), interval '1 day') where p.id = 1;
end $$;

-- One step of it: rows of a lane that the cursor passed, and those of them that nothing leads to. Reads by the primary key, without the
-- queue's lock; whoever gives rows back looks at each again under it. What is after the cursor needs no look.
create function @.patrol_step(q int, l smallint, after bigint, most int, out reached bigint, out looked int, out lost bigint[])
language plpgsql @pinned as $$
declare s @.claims := @.state(q); lo bigint[]; hi bigint[];
begin
  select array_agg(r.lo), array_agg(r.hi) into lo, hi from (
    select h.lo, h.hi from unnest(s.hole_lane, s.hole_lo, s.hole_hi) as h(lane, lo, hi) where h.lane = l
    union all
    select t.lo, t.hi from @.claims k, unnest(k.took_lane, k.took_lo, k.took_hi) as t(lane, lo, hi)
    where k.queue = q and not k.closed and t.lane = l) r;
  select max(x.seq), count(*)::int, array_agg(x.seq) filter (where not exists (
      select 1 from unnest(lo, hi) as r(lo, hi) where x.seq >= r.lo and x.seq <= r.hi))
    into reached, looked, lost
  from (select y.seq from @.jobs y where y.queue = q and y.lane = l and y.seq > after and y.seq <= s.cursor[l + 1] order by y.seq limit most) x;
end $$;

-- One round of all duties but the rescue, which needs the program. dead_workers: found now; lost: all that wait for their rescue.
create or replace function @.duties(most int, out promoted int, out more boolean, out woken int[], out next_due bigint, out dead_workers int, out lost uuid[], out labels text[],
  out pruned int, out expired int) language plpgsql @pinned as $$
declare q int;
begin
  perform @.require_read_committed();
  select p.moved, p.more, p.woken, p.next_due into promoted, more, woken, next_due from @.promote(most) p;
  pruned := @.prune(most);
  perform @.roll_up();
  perform @.roll_up_parked();
  select coalesce(count(*) filter (where d.fresh), 0), coalesce(array_agg(d.id), '{}'), coalesce(array_agg(d.label), '{}') into dead_workers, lost, labels from @.find_dead() d;
  expired := @.expire(most);
  for q in select x.id from @.queues x where x.drop_oldest and x.max_length is not null order by x.id loop
    if @.ready_estimate(q) > (select x.max_length from @.queues x where x.id = q) then perform @.trim(q); end if;
  end loop;
  more := more or pruned >= most or expired >= most;
end $$;
