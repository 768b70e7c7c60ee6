-- choose_letters: record the letters of a redrive, and which of them its canary sends first.

-- name: choose
-- A letter that is recorded already, or is no longer dead, is left out. Returns each letter that was recorded, with its
-- state.
-- 1 task ids, 2 lots, 3 why each is skipped or empty, 4 operation, 5 other queue or NULL, 6 whether letters in doubt
-- are sent
INSERT INTO /*schema*/operation_task (
    operation_id, task_id, state, queue, upstream, function, tenant, run, lot, why
)
SELECT
    $4, d.task_id,
    CASE WHEN given.why <> '' OR (x.in_doubt AND NOT $6::boolean) THEN 'skipped' ELSE 'chosen' END,
    coalesce($5::text, d.queue), t.upstream, d.function, d.tenant, d.run, given.lot,
    CASE WHEN x.in_doubt AND NOT $6 THEN 'its call may have been processed' ELSE given.why END
FROM unnest($1::uuid[], $2::integer[], $3::text[]) AS given (task_id, lot, why)
INNER JOIN /*schema*/dead AS d ON d.task_id = given.task_id
INNER JOIN /*schema*/task AS t ON t.id = d.task_id
CROSS JOIN LATERAL (
    SELECT
        d.reason = 'in_doubt'
        OR EXISTS (SELECT 1 FROM /*schema*/step AS s WHERE s.task_id = d.task_id AND s.state = 'open') AS in_doubt
) AS x
ON CONFLICT (operation_id, task_id) DO NOTHING
RETURNING task_id, state

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
-- Returns the letters that were chosen for the canary.
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
