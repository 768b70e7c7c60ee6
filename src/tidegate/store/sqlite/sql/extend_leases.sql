-- extend_leases: extend leases. The lease is in the worker's row, so a heartbeat is one update, independent of the
-- number of tasks.

-- name: beat
-- Returns the id if the worker is alive.
-- 1 id, 2 at, 3 lease in seconds
UPDATE worker
SET
    heartbeat_at = ?2,
    expires_at = ?2 + ?3
WHERE id = ?1
    AND retired_at IS NULL
RETURNING id
