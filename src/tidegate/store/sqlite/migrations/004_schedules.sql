-- 004: schedules: tables for schedules, their ticks and the sets that applications declare, and which set a worker has.
-- Locks: none that matter. The tables are new, and the column of `worker` has a constant default.
-- Older code runs on: it does not fire schedules, and its workers have no set.

CREATE TABLE schedule (
    name        TEXT PRIMARY KEY,
    application TEXT NOT NULL,           -- that declares it; empty: a person added it
    rule        TEXT NOT NULL,           -- JSON of domain.schedule.ScheduleRule
    task        TEXT NOT NULL,           -- JSON of domain.schedule.ScheduledTask
    next_at     REAL,                    -- the first tick that is not decided; NULL: paused or removed
    revision    INTEGER NOT NULL,        -- +1 at each firing and each change: a firing planned before does nothing
    changed_at  REAL NOT NULL,
    paused_at   REAL,
    removed_at  REAL                     -- its application no longer declares it
) WITHOUT ROWID;
CREATE INDEX schedule_next ON schedule (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_application ON schedule (application) WHERE application <> '';

-- What became of each tick. The primary key admits one task for a schedule and tick.
CREATE TABLE tick (
    schedule   TEXT NOT NULL,
    at         REAL NOT NULL,            -- the planned moment; for a run by hand, the moment of the request
    until_at   REAL NOT NULL,            -- a row of several missed ticks: the last of them
    ticks      INTEGER NOT NULL,         -- how many ticks it stands for
    outcome    TEXT NOT NULL CHECK (outcome IN ('fired', 'queued', 'skipped', 'missed')),
    reason     TEXT NOT NULL,            -- of domain.schedule.TickReason; empty for a tick that fired in time
    decided_at REAL NOT NULL,
    task_id    BLOB,                     -- of a fired tick
    open       INTEGER NOT NULL,         -- 1: its task counts as unfinished for the next ticks
    PRIMARY KEY (schedule, at)
) WITHOUT ROWID;
CREATE INDEX tick_open ON tick (schedule) WHERE open = 1;
CREATE INDEX tick_queued ON tick (schedule) WHERE outcome = 'queued';
CREATE INDEX tick_decided ON tick (outcome, decided_at);

-- The sets of schedules that an application has declared. The set with the highest generation is in force.
CREATE TABLE schedule_set (
    application TEXT NOT NULL,
    fingerprint TEXT NOT NULL,           -- a hash of all its schedules
    generation  INTEGER NOT NULL,
    declared_at REAL NOT NULL,           -- when it came into force last
    PRIMARY KEY (application, fingerprint)
) WITHOUT ROWID;

ALTER TABLE worker ADD COLUMN schedule_set TEXT NOT NULL DEFAULT '';  -- the set that its application declares
