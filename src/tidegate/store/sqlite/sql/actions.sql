-- actions: record what people did to a task, for its history.

-- name: insert
-- 1 task id, 2 now, 3 kind, 4 why
INSERT INTO action (task_id, at, kind, why)
VALUES (?, ?, ?, ?)
ON CONFLICT (task_id, at, kind) DO UPDATE
SET why = excluded.why

-- name: where
-- Returns only the name of the table that has the task. No other writer can move the task before the action.
-- 1 task id
SELECT
    CASE
        WHEN EXISTS (SELECT 1 FROM ready WHERE task_id = t.id) THEN 'ready'
        WHEN EXISTS (SELECT 1 FROM running WHERE task_id = t.id) THEN 'running'
        WHEN EXISTS (SELECT 1 FROM archive WHERE task_id = t.id) THEN 'archive'
        WHEN EXISTS (SELECT 1 FROM dead WHERE task_id = t.id) THEN 'dead'
        WHEN s.task_id IS NOT NULL AND c.committed_at IS NOT NULL THEN 'enqueue_batch_task'
        WHEN s.task_id IS NOT NULL THEN NULL
        ELSE (SELECT state FROM waiting WHERE task_id = t.id)
    END
FROM task AS t
LEFT JOIN enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN enqueue_batch AS c ON c.id = s.batch_id
WHERE t.id = ?1
