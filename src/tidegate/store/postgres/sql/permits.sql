-- permits: calls in flight that are not counted as a run. A permit is added while the row of its gate is locked.

-- name: add
-- 1 id, 2 upstream, 3 moment it expires, 4 task id and 5 run of the call, or NULL
INSERT INTO /*schema*/permit (id, upstream, expires_at, task_id, run)
VALUES ($1, $2, $3, $4, $5)

-- name: release
-- 1 ids
DELETE FROM /*schema*/permit
WHERE id = ANY ($1::text[])

-- name: extend
-- 1 ids, 2 at: see moment, 3 seconds from then until they expire
UPDATE /*schema*/permit
SET expires_at = greatest(expires_at, /*schema*/moment($2) + $3::float8)
WHERE id = ANY ($1::text[])
