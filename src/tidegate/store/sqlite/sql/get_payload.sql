-- get_payload: read a task's encoded arguments.

-- name: payload
-- 1 task id
SELECT p.args, p.codec_tag
FROM payload AS p
LEFT JOIN enqueue_batch_task AS s ON s.task_id = p.task_id
LEFT JOIN enqueue_batch AS c ON c.id = s.batch_id
WHERE p.task_id = ?1
    AND (s.task_id IS NULL OR c.committed_at IS NOT NULL)
