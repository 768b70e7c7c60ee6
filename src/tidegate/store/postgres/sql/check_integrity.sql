-- check_integrity: check that the tables are consistent. Each statement counts the rows that violate one rule.

-- name: missing_state
-- Tasks without a state.
SELECT count(*)
FROM /*schema*/task AS t
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/ready WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/running WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/waiting WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/archive WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/dead WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/enqueue_batch_task WHERE task_id = t.id)

-- name: duplicate_state
-- Tasks with two states.
SELECT count(*)
FROM (
    SELECT task_id
    FROM (
        SELECT task_id FROM /*schema*/ready
        UNION ALL
        SELECT task_id FROM /*schema*/running
        UNION ALL
        SELECT task_id FROM /*schema*/waiting
        UNION ALL
        SELECT task_id FROM /*schema*/archive
        UNION ALL
        SELECT task_id FROM /*schema*/dead
        UNION ALL
        SELECT task_id FROM /*schema*/enqueue_batch_task WHERE holder IS NULL
    ) AS placed
    GROUP BY task_id
    HAVING count(*) > 1
) AS offender

-- name: orphaned_rows
-- Rows with the state of a task that does not exist.
SELECT count(*)
FROM (
    SELECT task_id FROM /*schema*/ready
    UNION ALL
    SELECT task_id FROM /*schema*/running
    UNION ALL
    SELECT task_id FROM /*schema*/waiting
    UNION ALL
    SELECT task_id FROM /*schema*/archive
    UNION ALL
    SELECT task_id FROM /*schema*/dead
    UNION ALL
    SELECT task_id FROM /*schema*/enqueue_batch_task WHERE holder IS NULL
) AS placed
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = placed.task_id)

-- name: missing_payload
-- Tasks without arguments. The arguments of finished tasks may have been removed before the task.
SELECT count(*)
FROM /*schema*/task AS t
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/payload AS p WHERE p.task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/archive AS a WHERE a.task_id = t.id)

-- name: missing_worker
-- Runs of workers that do not exist.
SELECT count(*)
FROM /*schema*/running AS r
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/worker AS w WHERE w.id = r.worker_id)
