-- get_history: read the history of a task. The statements share a transaction, so they see one snapshot.

-- name: enqueued
-- 1 task id
SELECT t.enqueued_at
FROM /*schema*/task AS t
LEFT JOIN /*schema*/enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN /*schema*/enqueue_batch AS c ON c.id = s.batch_id
WHERE t.id = $1
    AND (s.task_id IS NULL OR c.committed_at IS NOT NULL)

-- name: attempts
-- The runs that did not succeed.
-- 1 task id
SELECT
    run, worker_id, started_at, ended_at, outcome, charge, verdict, reason, error_class, message, traceback,
    status, code, request_id, evidence, next_run_at, why
FROM /*schema*/attempt
WHERE task_id = $1
ORDER BY run

-- name: other_runs
-- The run that succeeded, or the current run. A task has at most one of them.
-- 1 task id
SELECT run, worker_id, started_at, finished_at
FROM /*schema*/archive
WHERE task_id = $1
    AND state = 'succeeded'
UNION ALL
SELECT run, worker_id, started_at, NULL::double precision
FROM /*schema*/running
WHERE task_id = $1

-- name: actions
-- 1 task id
SELECT kind, at, why
FROM /*schema*/action
WHERE task_id = $1
ORDER BY at
