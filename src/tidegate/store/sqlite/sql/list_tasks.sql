-- list_tasks: list the newest tasks of some states. Each state is read from its own table, newest first, so that a
-- page of dead tasks costs the same with a million finished ones. The caller merges the pages.
-- Parameters of every statement: 1 state, 2 queue, 3 function, 4 tenant, 5 reason of the last failure, 6 error class of the
-- last failed run, 7 moment before which they were enqueued, 8 labels as a JSON object (each but the first NULL for
-- any), 9 id after which to continue (the largest id to start), 10 how many at most

-- shared: conditions
-- The condition on the reason of the last failure (5) differs, so each statement has its own.
AND x.task_id < ?9
AND (?2 IS NULL OR t.queue = ?2)
AND (?3 IS NULL OR t.function = ?3)
AND (?4 IS NULL OR t.tenant = ?4)
AND (
    ?6 IS NULL
    OR ?6 = (
        SELECT p.error_class FROM attempt AS p WHERE p.task_id = t.id ORDER BY p.run DESC LIMIT 1
    )
)
AND (?7 IS NULL OR t.enqueued_at < ?7)
AND (
    ?8 IS NULL
    OR NOT EXISTS (
        SELECT 1
        FROM json_each(?8) AS want
        WHERE NOT EXISTS (
            SELECT 1
            FROM json_each(t.labels) AS have
            WHERE have.key = want.key AND have.value = want.value
        )
    )
)

-- name: ready
SELECT x.task_id
FROM ready AS x
CROSS JOIN task AS t ON t.id = x.task_id
WHERE ?1 = 'ready'
    AND (?5 IS NULL OR t.last_reason = ?5)
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10

-- name: running
SELECT x.task_id
FROM running AS x
CROSS JOIN task AS t ON t.id = x.task_id
WHERE ?1 = 'running'
    AND (?5 IS NULL OR t.last_reason = ?5)
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10

-- name: waiting
SELECT x.task_id
FROM waiting AS x
CROSS JOIN task AS t ON t.id = x.task_id
WHERE x.state = ?1
    AND (?5 IS NULL OR t.last_reason = ?5)
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10

-- name: succeeded
SELECT x.task_id
FROM archive AS x
CROSS JOIN task AS t ON t.id = x.task_id
WHERE x.state = 'succeeded'
    AND ?1 = 'succeeded'
    AND ?5 IS NULL
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10

-- name: cancelled
-- The state is a literal, so that the small index `archive_cancelled` is used: few tasks are cancelled.
SELECT x.task_id
FROM archive AS x
CROSS JOIN task AS t ON t.id = x.task_id
WHERE x.state = 'cancelled'
    AND ?1 = 'cancelled'
    AND (?5 IS NULL OR ?5 = 'cancelled')
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10

-- name: dead
SELECT x.task_id
FROM dead AS x
CROSS JOIN task AS t ON t.id = x.task_id
WHERE ?1 = 'dead'
    AND (?5 IS NULL OR t.last_reason = ?5)
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10

-- name: enqueue_batch_task
-- Tasks of committed batches that were not moved yet.
SELECT x.task_id
FROM enqueue_batch_task AS x
CROSS JOIN enqueue_batch AS c ON c.id = x.batch_id
CROSS JOIN task AS t ON t.id = x.task_id
WHERE c.committed_at IS NOT NULL
    AND x.holder IS NULL
    AND ?1 = CASE WHEN x.due_at IS NULL THEN 'ready' ELSE 'scheduled' END
    AND (?5 IS NULL OR t.last_reason = ?5)
    /*conditions*/
ORDER BY x.task_id DESC
LIMIT ?10
