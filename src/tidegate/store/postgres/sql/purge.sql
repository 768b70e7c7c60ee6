-- purge: delete tasks with everything that belongs to them. delete_expired uses it too. Keys stay until they expire.

-- name: delete
-- 1 ids
WITH
    payloads AS (DELETE FROM /*schema*/payload WHERE task_id = ANY ($1::uuid[])),
    archived AS (DELETE FROM /*schema*/archive WHERE task_id = ANY ($1::uuid[])),
    results AS (DELETE FROM /*schema*/result WHERE task_id = ANY ($1::uuid[])),
    letters AS (DELETE FROM /*schema*/dead WHERE task_id = ANY ($1::uuid[])),
    reported AS (DELETE FROM /*schema*/progress WHERE task_id = ANY ($1::uuid[])),
    used AS (DELETE FROM /*schema*/usage WHERE task_id = ANY ($1::uuid[])),
    attempts AS (DELETE FROM /*schema*/attempt WHERE task_id = ANY ($1::uuid[])),
    acts AS (DELETE FROM /*schema*/action WHERE task_id = ANY ($1::uuid[])),
    streams AS (DELETE FROM /*schema*/stream WHERE task_id = ANY ($1::uuid[])),
    chunks AS (DELETE FROM /*schema*/chunk WHERE task_id = ANY ($1::uuid[]))
DELETE FROM /*schema*/task
WHERE id = ANY ($1::uuid[])

-- name: free_keys
-- Free the idempotency keys that these tasks hold.
-- 1 ids
DELETE FROM /*schema*/key AS k
USING /*schema*/task AS t
WHERE t.id = ANY ($1::uuid[])
    AND k.kind = 'key'
    AND k.tenant = t.tenant
    AND k.name = t.idempotency_key
    AND k.task_id = t.id
