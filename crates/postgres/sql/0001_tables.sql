-- Tables of schema version 1. "@." stands for the schema, "@class" for its class of advisory locks.

create table @.queues (
  id              int     generated always as identity primary key,
  name            text    collate "C" not null unique,
  delivery_limit  bigint  not null default 3,
  ttl             bigint,                           -- microseconds, as every duration here
  drop_expired    boolean not null default false,
  max_length      bigint,
  drop_oldest     boolean not null default false,
  dead_retention  bigint,
  paused          boolean not null default false
);

-- Jobs that are ready or held. A row is never updated. The narrow columns are null for what most jobs have: no failure, no lost
-- delivery, due when stored, and the lane as their priority.
create table @.jobs (
  queue       int         not null,
  lane        smallint    not null,                 -- 0 to 9: the priority; 10: suspects of a crash; 11: parked jobs that were adopted
  seq         bigint      not null,                 -- batch << 16 | index in the batch; batches are numbered without gaps per (queue, lane)
  priority    smallint,
  attempt     int,
  deliveries  int,
  id          uuid        not null,
  enqueued_at timestamptz not null,
  due_at      timestamptz,
  expires_at  timestamptz,
  task        text        collate "C" not null,
  payload     bytea       not null,
  extras      bytea,
  primary key (queue, lane, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.5, autovacuum_analyze_threshold = 50000);
create index jobs_expires on @.jobs (expires_at) where expires_at is not null;

-- One row a fetch. The newest row of a queue is the queue's whole dispatch state.
create table @.claims (
  queue      int         not null,
  claim      bigint      not null,                  -- number << 20 | random: a number that a crash makes again is still another claim
  worker     uuid        not null,
  prev       bigint,                                -- the row this one was built on
  closed     boolean     not null default false,    -- all its jobs are gone; kept because it was the newest
  taken_at   timestamptz not null,
  took_lane  smallint[]  not null,                  -- ranges: every row of jobs in them belongs to this claim
  took_lo    bigint[]    not null,
  took_hi    bigint[]    not null,
  cursor     bigint[]    not null,                  -- per lane: the highest seq passed
  hole_lane  smallint[]  not null,                  -- ranges that the cursor passed and nobody holds
  hole_lo    bigint[]    not null,
  hole_hi    bigint[]    not null,
  hole_xmax  xid8[]      not null,                  -- once every transaction below this has ended, an empty hole is a rolled back one
  taken      bigint      not null,                  -- running total handed out, less what was given back
  primary key (queue, claim)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index claims_worker on @.claims (worker);
create sequence @.claim_number;

create table @.scheduled (
  n           bigint      generated always as identity primary key,
  queue       int         not null,
  priority    smallint    not null,
  attempt     int         not null,
  deliveries  int         not null,
  id          uuid        not null,
  enqueued_at timestamptz not null,
  due_at      timestamptz not null,
  expires_at  timestamptz,
  since       timestamptz not null,
  task        text        collate "C" not null,
  payload     bytea       not null,
  extras      bytea
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index scheduled_due on @.scheduled (due_at, n);
create index scheduled_id on @.scheduled (id);

create table @.parked (
  n           bigint      generated always as identity primary key,
  queue       int         not null,
  priority    smallint    not null,
  attempt     int         not null,
  deliveries  int         not null,
  id          uuid        not null,
  enqueued_at timestamptz not null,
  due_at      timestamptz not null,
  expires_at  timestamptz,
  since       timestamptz not null,
  task        text        collate "C" not null,
  payload     bytea       not null,
  extras      bytea,
  waits_for   text        collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.05);
create index parked_waits on @.parked (waits_for, n);
create index parked_id on @.parked (id);
create index parked_expires on @.parked (expires_at) where expires_at is not null;

create table @.dead (
  n           bigint      generated always as identity primary key,
  queue       int         not null,
  priority    smallint    not null,
  attempt     int         not null,
  deliveries  int         not null,
  id          uuid        not null,
  enqueued_at timestamptz not null,
  due_at      timestamptz not null,
  expires_at  timestamptz,
  since       timestamptz not null,
  task        text        collate "C" not null,
  payload     bytea       not null,
  extras      bytea,
  reason      text        collate "C" not null
);
create index dead_queue on @.dead (queue, since);
create index dead_id on @.dead (id);

-- Ids whose enqueue may be repeated, also after the job is done.
create table @.remembered (
  id uuid        primary key,
  at timestamptz not null
);
create index remembered_at on @.remembered (at);

create table @.acknowledged (
  queue int      not null,
  lane  smallint not null,
  seq   bigint   not null,
  primary key (queue, lane, seq)
);

create table @.cancellations (
  id uuid        primary key,
  at timestamptz not null
);

create table @.workers (
  id          uuid        primary key,
  label       text        not null,
  queues      text[]      not null,
  tasks       text[]      not null,
  concurrency bigint      not null,
  started_at  timestamptz not null,
  lease_until timestamptz not null,
  dead        boolean     not null default false
) with (fillfactor = 50);

create table @.tasks (
  name text collate "C" primary key,
  info text not null                                -- JSON, as the program describes the task
);

-- Changes to the figures of a queue, added and never updated, so that no two transactions wait for one another. Maintenance adds old
-- rows up into totals. What enters jobs is counted by two sequences for each queue (admitted_N, admitted64_N), what is handed out in claims.taken.
create table @.tally (
  n           bigint generated always as identity primary key,
  queue       int not null,
  deferred    int,      -- stored in another room than jobs
  readmitted  int,      -- entered jobs, and had been stored before
  removed     int,      -- left jobs and had not been handed out
  settled     int,      -- left jobs and had been handed out
  done        int,
  retried     int,
  buried      int,
  redelivered int,
  cancelled   int,
  dropped     int,
  scheduled   int,      -- change of the size of the room
  parked      int,
  dead        int
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create table @.totals (
  queue       int primary key,
  deferred    bigint not null default 0,
  readmitted  bigint not null default 0,
  removed     bigint not null default 0,
  settled     bigint not null default 0,
  done        bigint not null default 0,
  retried     bigint not null default 0,
  buried      bigint not null default 0,
  redelivered bigint not null default 0,
  cancelled   bigint not null default 0,
  dropped     bigint not null default 0,
  scheduled   bigint not null default 0,
  parked      bigint not null default 0,
  dead        bigint not null default 0
) with (fillfactor = 50);

-- How far a duty has come. A mark moves up to `next` once every transaction below `bound` has ended: rows below it that somebody had
-- not committed yet cannot exist any more. So no duty walks over the rows that it deleted itself.
create table @.marks (
  name  text   primary key,
  mark  bigint not null,
  next  bigint not null,
  bound xid8   not null
) with (fillfactor = 50);
