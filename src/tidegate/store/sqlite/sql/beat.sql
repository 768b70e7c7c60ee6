-- beat: move leases on. A lease is the worker's row, so a beat is one update however many tasks it covers.

-- name: beat
-- A row comes back if the worker is alive.
-- 1 id, 2 now, 3 moment the lease ends
UPDATE worker
SET
    beat_at = ?2,
    expires_at = ?3
WHERE id = ?1
    AND retired_at IS NULL
RETURNING 1
