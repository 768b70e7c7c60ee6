-- choose_letters: record the letters of a redrive, and which of them its canary sends first.

-- name: choose
-- A letter that is recorded already, or is no longer dead, is left out. Returns each letter that was recorded, with its
-- state.
-- 1 task id, 2 lot, 3 why it is skipped or empty, 4 operation, 5 other queue or NULL, 6 whether letters in doubt are sent
INSERT INTO operation_task (operation_id, task_id, state, queue, upstream, function, tenant, run, lot, why)
SELECT
    ?4, d.task_id, CASE WHEN ?3 <> '' OR (d.in_doubt AND NOT ?6) THEN 'skipped' ELSE 'chosen' END,
    coalesce(?5, d.queue), t.upstream, d.function, d.tenant, d.run, ?2,
    CASE WHEN d.in_doubt AND NOT ?6 THEN 'its call may have been processed' ELSE ?3 END
FROM (
    SELECT
        d.task_id, d.queue, d.function, d.tenant, d.run,
        d.reason = 'in_doubt'
        OR EXISTS (SELECT 1 FROM step AS s WHERE s.task_id = d.task_id AND s.state = 'open') AS in_doubt
    FROM dead AS d
    WHERE d.task_id = ?1
) AS d
CROSS JOIN task AS t ON t.id = d.task_id
WHERE d.task_id = ?1
ON CONFLICT (operation_id, task_id) DO NOTHING
RETURNING task_id, state

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
-- Returns the letters that were chosen for the canary.
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
