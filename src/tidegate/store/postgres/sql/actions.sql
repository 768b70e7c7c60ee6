-- actions: record what people did to tasks, for their histories.

-- name: insert
-- 1 ids: array of uuid, 2 at, 3 kind, 4 why
INSERT INTO /*schema*/action (task_id, at, kind, why)
SELECT given.id, m.now, $3, $4
FROM (SELECT /*schema*/moment($2) AS now) AS m
CROSS JOIN unnest($1::uuid[]) AS given (id)
ON CONFLICT (task_id, at, kind) DO UPDATE
SET why = excluded.why

-- name: where
-- Returns the table or the waiting state of each task; no row for a task that does not exist or is not visible yet.
-- 1 ids: array of uuid
SELECT
    t.id,
    CASE
        WHEN r.task_id IS NOT NULL THEN 'ready'
        WHEN n.task_id IS NOT NULL THEN 'running'
        WHEN w.task_id IS NOT NULL THEN w.state
        WHEN a.task_id IS NOT NULL THEN 'archive'
        WHEN d.task_id IS NOT NULL THEN 'dead'
        ELSE 'enqueue_batch_task'
    END
FROM unnest($1::uuid[]) AS given (id)
JOIN /*schema*/task AS t ON t.id = given.id
LEFT JOIN /*schema*/ready AS r ON r.task_id = t.id
LEFT JOIN /*schema*/running AS n ON n.task_id = t.id
LEFT JOIN /*schema*/waiting AS w ON w.task_id = t.id
LEFT JOIN /*schema*/archive AS a ON a.task_id = t.id
LEFT JOIN /*schema*/dead AS d ON d.task_id = t.id
LEFT JOIN /*schema*/enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN /*schema*/enqueue_batch AS c ON c.id = s.batch_id
WHERE s.task_id IS NULL
    OR c.committed_at IS NOT NULL
