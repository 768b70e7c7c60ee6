-- extend_leases: move leases on. A lease is the worker's row, so a beat is one update however many tasks it covers.

-- name: beat
-- The id comes back if the worker is alive.
-- 1 id, 2 at, 3 lease in seconds
UPDATE worker
SET
    heartbeat_at = ?2,
    expires_at = ?2 + ?3
WHERE id = ?1
    AND retired_at IS NULL
RETURNING id
