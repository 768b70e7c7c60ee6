-- 004: schedules: tables for schedules, their ticks and the sets that applications declare, and which set a worker has.
-- Locks: none that matter. The tables are new, and the column of `worker` has a constant default.
-- Older code runs on: it does not fire schedules, and its workers have no set.

CREATE TABLE /*schema*/schedule (
    name        text COLLATE "C" PRIMARY KEY,
    application text COLLATE "C" NOT NULL,  -- that declares it; empty: a person added it
    rule        text NOT NULL,              -- JSON of domain.schedule.ScheduleRule
    task        text NOT NULL,              -- JSON of domain.schedule.ScheduledTask
    next_at     double precision,           -- the first tick that is not decided; NULL: paused or removed
    revision    bigint NOT NULL,            -- +1 at each firing and each change: a firing planned before does nothing
    changed_at  double precision NOT NULL,
    paused_at   double precision,
    removed_at  double precision            -- its application no longer declares it
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1, vacuum_index_cleanup = on, vacuum_truncate = off
);
CREATE INDEX schedule_next ON /*schema*/schedule (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_application ON /*schema*/schedule (application) WHERE application <> '';

-- What became of each tick. The primary key admits one task for a schedule and tick.
CREATE TABLE /*schema*/tick (
    schedule   text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,   -- the planned moment; for a run by hand, the moment of the request
    until_at   double precision NOT NULL,   -- a row of several missed ticks: the last of them
    ticks      integer NOT NULL,            -- how many ticks it stands for
    outcome    text COLLATE "C" NOT NULL CHECK (outcome IN ('fired', 'queued', 'skipped', 'missed')),
    reason     text COLLATE "C" NOT NULL,   -- of domain.schedule.TickReason; empty for a tick that fired in time
    decided_at double precision NOT NULL,
    task_id    uuid,                        -- of a fired tick
    open       smallint NOT NULL,           -- 1: its task counts as unfinished for the next ticks
    PRIMARY KEY (schedule, at)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX tick_open ON /*schema*/tick (schedule) WHERE open = 1;
CREATE INDEX tick_queued ON /*schema*/tick (schedule) WHERE outcome = 'queued';
CREATE INDEX tick_decided ON /*schema*/tick (outcome, decided_at);

-- The sets of schedules that an application has declared. The set with the highest generation is in force.
CREATE TABLE /*schema*/schedule_set (
    application text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,  -- a hash of all its schedules
    generation  integer NOT NULL,
    declared_at double precision NOT NULL,  -- when it came into force last
    PRIMARY KEY (application, fingerprint)
);

-- the set of schedules that its application declares
ALTER TABLE /*schema*/worker ADD COLUMN schedule_set text COLLATE "C" NOT NULL DEFAULT '';
