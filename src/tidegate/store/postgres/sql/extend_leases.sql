-- extend_leases: extend leases. The lease is in the worker's row, so a heartbeat is one update, independent of the
-- number of tasks. The update changes no indexed column, so it stays in its page (HOT) and does not block a claim that
-- has locked the row's key.

-- name: beat
-- Returns the ids of the workers that are alive.
-- 1 ids, 2 at, 3 lease in seconds
UPDATE /*schema*/worker AS w
SET
    heartbeat_at = clock.now,
    expires_at = clock.now + $3::float8
FROM (SELECT /*schema*/moment($2) AS now) AS clock
WHERE w.id = ANY ($1::text[])
    AND w.retired_at IS NULL
RETURNING w.id
