-- permits: calls in flight that are not counted as a run.

-- name: add
-- 1 id, 2 upstream, 3 moment it expires, 4 task id and 5 run of the call, or NULL
INSERT INTO permit (id, upstream, expires_at, task_id, run)
VALUES (?1, ?2, ?3, ?4, ?5)

-- name: release
-- 1 id
DELETE FROM permit
WHERE id = ?1

-- name: extend
-- 1 id, 2 at, 3 seconds from then until it expires
UPDATE permit
SET expires_at = max(expires_at, ?2 + ?3)
WHERE id = ?1
