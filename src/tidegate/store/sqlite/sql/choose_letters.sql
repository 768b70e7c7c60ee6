-- choose_letters: record the letters of a redrive, and which of them its canary sends first.

-- name: choose
-- A letter that is chosen already, or is no longer dead, is left out.
-- 1 task id, 2 lot, 3 operation, 4 other queue or NULL, 5 whether letters in doubt are taken
INSERT INTO operation_task (operation_id, task_id, state, queue, upstream, function, tenant, run, lot)
SELECT ?3, d.task_id, 'chosen', coalesce(?4, d.queue), t.upstream, d.function, d.tenant, d.run, ?2
FROM dead AS d
CROSS JOIN task AS t ON t.id = d.task_id
WHERE d.task_id = ?1
    AND (?5 OR d.reason <> 'in_doubt')
ON CONFLICT (operation_id, task_id) DO NOTHING
RETURNING task_id

-- name: advance
-- 1 operation, 2 last letter that the filter chose
UPDATE operation
SET cursor = ?2
WHERE id = ?1

-- name: strata
-- 1 operation
SELECT function, tenant, count(*)
FROM operation_task
WHERE operation_id = ?1
    AND state = 'chosen'
GROUP BY function, tenant
ORDER BY function, tenant

-- name: mark_canary
-- Returns the letters that the canary got.
-- 1 function, 2 tenant, 3 how many, 4 operation
UPDATE operation_task
SET in_canary = 1
WHERE operation_id = ?4
    AND task_id IN (
        SELECT task_id
        FROM operation_task
        WHERE operation_id = ?4
            AND state = 'chosen'
            AND function = ?1
            AND tenant = ?2
        ORDER BY lot, task_id
        LIMIT ?3
    )
RETURNING task_id

-- name: set_canary
-- 1 operation, 2 size of the canary
UPDATE operation
SET canary = ?2
WHERE id = ?1
