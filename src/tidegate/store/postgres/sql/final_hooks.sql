-- final_hooks: what is enqueued when tasks reach a final state.

-- name: hooks
-- 1 task ids
SELECT t.id, t.function, t.queue, t.tenant, t.on_final, t.labels
FROM unnest($1::uuid[]) AS given (id)
CROSS JOIN LATERAL (
    SELECT x.id, x.function, x.queue, x.tenant, x.on_final, x.labels
    FROM /*schema*/task AS x
    WHERE x.id = given.id
    LIMIT 1
) AS t
WHERE t.on_final IS NOT NULL
ORDER BY t.id

-- name: set
-- Add the hooks of tasks that were stored in this transaction.
-- 1 task ids, 2 hooks as JSON
UPDATE /*schema*/task AS t
SET on_final = given.hook
FROM unnest($1::uuid[], $2::text[]) AS given (id, hook)
WHERE t.id = given.id

-- name: set_numbered
-- On a caller's connection: asyncpg.
-- 1 JSON object {task id: hook as JSON text}
UPDATE /*schema*/task AS t
SET on_final = given.value
FROM json_each_text($1::text::json) AS given (key, value)
WHERE t.id = given.key::uuid
RETURNING 1

-- name: set_format
-- On a caller's connection: psycopg, Django.
UPDATE /*schema*/task AS t
SET on_final = given.value
FROM json_each_text(%s::text::json) AS given (key, value)
WHERE t.id = given.key::uuid
RETURNING 1

-- name: set_named
-- On a caller's connection: SQLAlchemy.
UPDATE /*schema*/task AS t
SET on_final = given.value
FROM json_each_text(CAST(CAST(:p1 AS text) AS json)) AS given (key, value)
WHERE t.id = CAST(given.key AS uuid)
RETURNING 1
