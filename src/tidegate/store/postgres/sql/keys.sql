-- keys: idempotency keys and unique names. The function `settle_1` takes them.

-- name: free_unique
-- Free the unique names that these tasks hold until they are final.
-- 1 ids: array of uuid
DELETE FROM /*schema*/key AS k
USING /*schema*/task AS t
WHERE t.id = ANY($1::uuid[])
    AND t.unique_until_final
    AND k.kind = 'unique'
    AND k.tenant = t.tenant
    AND k.name = t.unique_name
    AND k.task_id = t.id
