-- The figures that the store keeps of itself: one row, taken anew by whoever finds it too old.
create table @.samples (
  name text primary key,
  -- When somebody last began to take it.
  turn_at timestamptz not null,
  body text not null
);
insert into @.samples (name, turn_at, body) values ('store', '-infinity', '');

-- What the server says of our tables, of itself, and of whoever keeps deleted rows alive. From its statistics alone:
-- the cost does not grow with the rows.
create function @.storage_figures()
returns table (relation text, bytes bigint, dead_rows bigint, oldest_snapshot bigint, connections bigint, max_connections bigint)
language sql stable as $$
  select c.relname::text, pg_total_relation_size(c.oid), coalesce(pg_stat_get_dead_tuples(c.oid), 0), x.oldest, x.connections, x.most
  from pg_class c
  cross join (
    select (select (extract(epoch from max(clock_timestamp() - a.xact_start)) * 1000000)::bigint
              from pg_stat_activity a where a.backend_xmin is not null and a.pid <> pg_backend_pid()) as oldest,
           (select count(*) from pg_stat_activity a where a.backend_type = 'client backend') as connections,
           current_setting('max_connections')::bigint as most
  ) x
  where c.oid in ('@.jobs'::regclass, '@.claims'::regclass, '@.scheduled'::regclass, '@.parked'::regclass,
                  '@.dead'::regclass, '@.workers'::regclass)
$$;
