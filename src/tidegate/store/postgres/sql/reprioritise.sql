-- reprioritise: give tasks that are not running another priority; their rank does not change. The statement is repeated
-- until each task was found, as in `cancel`.

-- name: standing
-- The row in `task` is changed only if the row in the state table was.
-- 1 ids: array of uuid, 2 priority
WITH in_ready AS (
    UPDATE /*schema*/ready
    SET priority = $2
    WHERE task_id = ANY(ARRAY(
        SELECT task_id FROM /*schema*/ready WHERE task_id = ANY($1::uuid[]) ORDER BY task_id FOR UPDATE
    ))
    RETURNING task_id
),
in_waiting AS (
    UPDATE /*schema*/waiting
    SET priority = $2
    WHERE task_id = ANY(ARRAY(
        SELECT task_id FROM /*schema*/waiting WHERE task_id = ANY($1::uuid[]) ORDER BY task_id FOR UPDATE
    ))
    RETURNING task_id
),
in_batch AS (
    SELECT s.task_id
    FROM /*schema*/enqueue_batch_task AS s
    JOIN /*schema*/enqueue_batch AS c ON c.id = s.batch_id
    WHERE s.task_id = ANY($1::uuid[])
        AND c.committed_at IS NOT NULL
    ORDER BY s.task_id
    FOR UPDATE OF s
),
met AS (
    SELECT task_id FROM in_ready
    UNION ALL
    SELECT task_id FROM in_waiting
    UNION ALL
    SELECT task_id FROM in_batch
)
UPDATE /*schema*/task AS t
SET priority = $2
FROM met
WHERE t.id = met.task_id
RETURNING t.id
