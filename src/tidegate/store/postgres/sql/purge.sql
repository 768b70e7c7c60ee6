-- purge: delete dead letters for good. The statements that delete a task are generated from the registry of tables.

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
