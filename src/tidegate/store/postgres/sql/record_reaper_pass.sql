-- record_reaper_pass: record a pass of a reaper, and restore missing worker rows that runs refer to.

-- name: note
-- The passes are recorded in one worker row that belongs to no worker and is retired from the start. `started_at` is
-- the start of the series of passes without a gap, by all reapers; `heartbeat_at` is the last pass. A clock that was
-- set back counts as a gap.
-- 1 at, 2 id, 3 seconds of the longest gap
INSERT INTO /*schema*/worker (
    id, name, pool, host, pid, queues, slots, version, started_at, heartbeat_at, expires_at, retired_at, retired_why
)
SELECT
    $2, 'reaper', '', '', 0, '[]', 0, '', clock.now, clock.now, clock.now, clock.now, 'the passes of the reapers'
FROM (SELECT /*schema*/moment($1) AS now) AS clock
ON CONFLICT (id) DO UPDATE
SET
    started_at = CASE
        WHEN excluded.heartbeat_at - worker.heartbeat_at BETWEEN 0 AND $3::float8 THEN worker.started_at
        ELSE excluded.heartbeat_at
    END,
    heartbeat_at = excluded.heartbeat_at,
    expires_at = excluded.expires_at,
    retired_at = excluded.retired_at
RETURNING heartbeat_at, started_at

-- name: restore
-- Returns the ids. A worker that is still alive extends the lease of its row; otherwise it is reaped like any other.
-- 1 at, 2 seconds of the lease
INSERT INTO /*schema*/worker (
    id, name, pool, host, pid, queues, slots, version, started_at, heartbeat_at, expires_at
)
SELECT r.worker_id, 'its row was missing', '', '', 0, '[]', 0, '', clock.now, clock.now, clock.now + $2::float8
FROM (
    SELECT DISTINCT held.worker_id
    FROM /*schema*/running AS held
    WHERE NOT EXISTS (SELECT 1 FROM /*schema*/worker AS w WHERE w.id = held.worker_id)
) AS r
CROSS JOIN (SELECT /*schema*/moment($1) AS now) AS clock
ON CONFLICT (id) DO NOTHING
RETURNING id
