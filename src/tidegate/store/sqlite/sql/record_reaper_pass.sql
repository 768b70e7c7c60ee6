-- record_reaper_pass: record a pass of a reaper, and restore missing worker rows that runs refer to.

-- name: note
-- The passes are recorded in one worker row that belongs to no worker and is retired from the start. `started_at` is
-- the start of the series of passes without a gap, by all reapers; `heartbeat_at` is the last pass. A clock that was
-- set back counts as a gap.
-- 1 at, 2 id, 3 seconds of the longest gap
INSERT INTO worker (
    id, name, pool, host, pid, queues, slots, version, started_at, heartbeat_at, expires_at, retired_at, retired_why
)
VALUES (?2, 'reaper', '', '', 0, '[]', 0, '', ?1, ?1, ?1, ?1, 'the passes of the reapers')
ON CONFLICT (id) DO UPDATE
SET
    started_at = CASE
        WHEN excluded.heartbeat_at - worker.heartbeat_at BETWEEN 0 AND ?3 THEN worker.started_at
        ELSE excluded.heartbeat_at
    END,
    heartbeat_at = excluded.heartbeat_at,
    expires_at = excluded.expires_at,
    retired_at = excluded.retired_at
RETURNING heartbeat_at, started_at

-- name: restore
-- Returns the ids. A worker that is still alive extends the lease of its row; otherwise it is reaped like any other.
-- 1 at, 2 seconds of the lease
INSERT INTO worker (id, name, pool, host, pid, queues, slots, version, started_at, heartbeat_at, expires_at)
SELECT DISTINCT r.worker_id, 'its row was missing', '', '', 0, '[]', 0, '', ?1, ?1, ?1 + ?2
FROM running AS r
WHERE NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.id = r.worker_id)
RETURNING id
