-- keys: idempotency keys and unique names. A name is free if its row has expired, and a unique name also if its task
-- was deleted. An idempotency key outlives the retention of its task, because the work must not be done again.

-- name: take
-- Take a name if it is free; returns a row only if it was.
-- 1 kind (key, unique), 2 tenant, 3 name, 4 task id, 5 fingerprint, 6 moment it expires or NULL,
-- 7 now
INSERT INTO key (kind, tenant, name, task_id, fingerprint, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (kind, tenant, name) DO UPDATE
SET
    task_id = excluded.task_id,
    fingerprint = excluded.fingerprint,
    expires_at = excluded.expires_at
WHERE key.task_id = excluded.task_id
    OR key.expires_at <= ?7
    OR (key.kind = 'unique' AND NOT EXISTS (SELECT 1 FROM task AS t WHERE t.id = key.task_id))
RETURNING 1

-- name: holder
-- 1 kind, 2 tenant, 3 name
SELECT task_id, fingerprint
FROM key
WHERE kind = ?1
    AND tenant = ?2
    AND name = ?3

-- name: release
-- Free a name if this task holds it.
-- 1 kind, 2 tenant, 3 name, 4 task id
DELETE FROM key
WHERE kind = ?1
    AND tenant = ?2
    AND name = ?3
    AND task_id = ?4

-- name: release_key
-- Free the idempotency key that a task holds.
-- 1 task id
DELETE FROM key
WHERE kind = 'key'
    AND task_id = ?1
    AND (tenant, name) = (SELECT t.tenant, t.idempotency_key FROM task AS t WHERE t.id = ?1)
