-- check_integrity: check that the tables are consistent. Each statement counts the rows that violate one rule.

-- name: missing_state
-- Tasks without a state.
SELECT count(*)
FROM task AS t
WHERE NOT EXISTS (SELECT 1 FROM ready WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM running WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM waiting WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM archive WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM dead WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM enqueue_batch_task WHERE task_id = t.id)

-- name: duplicate_state
-- Tasks with two states.
SELECT count(*)
FROM (
    SELECT task_id
    FROM (
        SELECT task_id FROM ready
        UNION ALL
        SELECT task_id FROM running
        UNION ALL
        SELECT task_id FROM waiting
        UNION ALL
        SELECT task_id FROM archive
        UNION ALL
        SELECT task_id FROM dead
        UNION ALL
        SELECT task_id FROM enqueue_batch_task WHERE holder IS NULL
    )
    GROUP BY task_id
    HAVING count(*) > 1
)

-- name: orphaned_rows
-- Rows with the state of a task that does not exist.
SELECT count(*)
FROM (
    SELECT task_id FROM ready
    UNION ALL
    SELECT task_id FROM running
    UNION ALL
    SELECT task_id FROM waiting
    UNION ALL
    SELECT task_id FROM archive
    UNION ALL
    SELECT task_id FROM dead
    UNION ALL
    SELECT task_id FROM enqueue_batch_task WHERE holder IS NULL
) AS placed
WHERE NOT EXISTS (SELECT 1 FROM task AS t WHERE t.id = placed.task_id)

-- name: missing_payload
-- Tasks without arguments. The arguments of finished tasks may have been removed before the task.
SELECT count(*)
FROM task AS t
WHERE NOT EXISTS (SELECT 1 FROM payload AS p WHERE p.task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = t.id)

-- name: missing_worker
-- Runs of workers that do not exist.
SELECT count(*)
FROM running AS r
WHERE NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.id = r.worker_id)
