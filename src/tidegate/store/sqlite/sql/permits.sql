-- permits: calls in flight that are not counted as a run.

-- name: add
-- 1 id, 2 upstream, 3 moment it expires
INSERT INTO permit (id, upstream, expires_at)
VALUES (?1, ?2, ?3)

-- name: release
-- 1 id
DELETE FROM permit
WHERE id = ?1

-- name: extend
-- 1 id, 2 at, 3 seconds from then until it expires
UPDATE permit
SET expires_at = max(expires_at, ?2 + ?3)
WHERE id = ?1
