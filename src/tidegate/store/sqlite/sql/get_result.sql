-- get_result: read the final state of a task, with its result or the reason why it has none.

-- name: result
-- 1 task id
SELECT
    coalesce(a.state, CASE WHEN d.task_id IS NOT NULL THEN 'dead' END) AS state,
    r.data, r.codec_tag, d.reason, d.error_class, d.message,
    (
        SELECT p.why FROM attempt AS p
        WHERE p.task_id = t.id AND p.run = a.run AND p.outcome = 'cancelled'
    ) AS stopped,
    (
        SELECT c.why FROM action AS c
        WHERE c.task_id = t.id AND c.kind = 'cancel requested'
        ORDER BY c.at DESC
        LIMIT 1
    ) AS asked,
    d.fingerprint
FROM task AS t
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
LEFT JOIN result AS r ON r.task_id = t.id
LEFT JOIN enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN enqueue_batch AS g ON g.id = s.batch_id
WHERE t.id = ?1
    AND (s.task_id IS NULL OR g.committed_at IS NOT NULL)
