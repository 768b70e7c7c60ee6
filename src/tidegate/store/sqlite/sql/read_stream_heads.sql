-- read_stream_heads: read the states of some tasks and the last numbers of their streams, in one statement and so
-- from one snapshot.

-- name: heads
-- 1 ids: carray of 16-byte ids
SELECT
    t.id,
    CASE
        WHEN r.task_id IS NOT NULL THEN 'ready'
        WHEN n.task_id IS NOT NULL THEN 'running'
        WHEN w.task_id IS NOT NULL THEN w.state
        WHEN a.task_id IS NOT NULL THEN a.state
        WHEN d.task_id IS NOT NULL THEN 'dead'
        WHEN s.due_at IS NOT NULL THEN 'scheduled'
        ELSE 'ready'
    END AS state,
    coalesce(r.run, n.run, w.run, a.run, d.run, 0) AS run,
    t.tenant,
    coalesce(m.last, 0) AS last,
    g.done, g.total, g.note
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
LEFT JOIN ready AS r ON r.task_id = t.id
LEFT JOIN running AS n ON n.task_id = t.id
LEFT JOIN waiting AS w ON w.task_id = t.id
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
LEFT JOIN enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN enqueue_batch AS c ON c.id = s.batch_id
LEFT JOIN stream AS m ON m.task_id = t.id
LEFT JOIN progress AS g ON g.task_id = t.id
WHERE s.task_id IS NULL
    OR c.committed_at IS NOT NULL
