-- choose_letters: record the letters of a redrive, and which of them its canary sends first.

-- name: choose
-- A letter that is chosen already, or is no longer dead, is left out.
-- 1 task ids, 2 lots, 3 operation, 4 other queue or NULL, 5 whether letters in doubt are taken
INSERT INTO /*schema*/operation_task (operation_id, task_id, state, queue, upstream, function, tenant, run, lot)
SELECT $3, d.task_id, 'chosen', coalesce($4, d.queue), t.upstream, d.function, d.tenant, d.run, $2
FROM /*schema*/dead AS d
CROSS JOIN /*schema*/task AS t ON t.id = d.task_id
WHERE d.task_id = $1
    AND ($5 OR d.reason <> 'in_doubt')
ON CONFLICT (operation_id, task_id) DO NOTHING
RETURNING task_id

-- name: advance
-- 1 operation, 2 last letter that the filter chose
UPDATE /*schema*/operation
SET cursor = $2
WHERE id = $1

-- name: strata
-- 1 operation
SELECT function, tenant, count(*)
FROM /*schema*/operation_task
WHERE operation_id = $1
    AND state = 'chosen'
GROUP BY function, tenant
ORDER BY function, tenant

-- name: mark_canary
-- Returns the letters that the canary got.
-- 1 functions, 2 tenants, 3 how many of each, 4 operation
UPDATE /*schema*/operation_task AS o
SET in_canary = 1
FROM unnest($1::text[], $2::text[], $3::integer[]) AS given (function, tenant, letters)
CROSS JOIN LATERAL (
    SELECT x.task_id
    FROM /*schema*/operation_task AS x
    WHERE x.operation_id = $4
        AND x.state = 'chosen'
        AND x.function = given.function
        AND x.tenant = given.tenant
    ORDER BY x.lot, x.task_id
    LIMIT given.letters
) AS picked
WHERE o.operation_id = $4
    AND o.task_id = picked.task_id
RETURNING o.task_id

-- name: set_canary
-- 1 operation, 2 size of the canary
UPDATE /*schema*/operation
SET canary = $2
WHERE id = $1
