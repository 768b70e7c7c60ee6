-- extend_leases: move leases on. A lease is the worker's row, so a beat is one update however many tasks it covers. It
-- changes no indexed column, so it stays within its page and does not disturb a claim that holds the row's key.

-- name: beat
-- The ids of those that are alive come back.
-- 1 ids, 2 at, 3 lease in seconds
UPDATE /*schema*/worker AS w
SET
    heartbeat_at = clock.now,
    expires_at = clock.now + $3::float8
FROM (SELECT /*schema*/moment($2) AS now) AS clock
WHERE w.id = ANY ($1::text[])
    AND w.retired_at IS NULL
RETURNING w.id
