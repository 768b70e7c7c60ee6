-- read_tasks: read all columns of some tasks, in one statement and so from one snapshot: a task is in exactly one of
-- the state tables, and separate statements could miss a task that changes its state. Tasks of a batch are visible once
-- it is committed.

-- name: read
-- 1 ids: carray of 16-byte ids
SELECT
    t.id, t.function, t.queue, t.priority, t.upstream, t.tenant,
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
    t.attempts, t.parks, t.crashes, t.losses, t.releases, t.rule_attempts, t.redrives, t.enqueued_at,
    coalesce(r.ready_at, n.ready_at, w.due_at, a.ready_at, s.due_at, c.committed_at) AS due_at,
    w.held_until_at, w.held_by,
    coalesce(
        n.started_at, a.started_at, d.started_at,
        (SELECT p.started_at FROM attempt AS p WHERE p.task_id = t.id ORDER BY p.run DESC LIMIT 1)
    ) AS started_at,
    coalesce(a.finished_at, d.failed_at) AS finished_at,
    coalesce(n.worker_id, a.worker_id, d.worker_id) AS worker_id,
    n.cancel_requested_at IS NOT NULL AS cancel_requested,
    t.last_reason, t.last_message, w.why,
    g.done, g.total, g.note,
    t.idempotency_key, t.max_attempts, t.deadline_at, t.redriven_at, t.labels,
    u.calls, u.input_tokens, u.cached_tokens, u.cache_write_tokens, u.output_tokens, u.reasoning_tokens
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
LEFT JOIN ready AS r ON r.task_id = t.id
LEFT JOIN running AS n ON n.task_id = t.id
LEFT JOIN waiting AS w ON w.task_id = t.id
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
LEFT JOIN enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN enqueue_batch AS c ON c.id = s.batch_id
LEFT JOIN progress AS g ON g.task_id = t.id
LEFT JOIN usage AS u ON u.task_id = t.id
WHERE s.task_id IS NULL
    OR c.committed_at IS NOT NULL
