-- list_orphans: list the runs of retired workers, oldest first. It starts from the few retired workers, so that its
-- cost does not depend on the number of live runs.

-- name: orphans
-- 1 how many at most
SELECT
    r.task_id, r.run, r.worker_id, r.function, r.queue, r.started_at, r.crash_limit, r.crash_base_seconds,
    r.crash_max_seconds, t.attempts, t.parks, t.crashes, t.losses, t.releases, t.rule_attempts, w.lost,
    w.retired_why, r.cancel_requested_at IS NOT NULL AS cancel_requested,
    CASE WHEN w.culprit_id IS NOT NULL THEN r.task_id = w.culprit_id AND r.run = w.culprit_run END
        AS is_culprit,
    r.upstream
FROM /*schema*/worker AS w
INNER JOIN /*schema*/running AS r ON r.worker_id = w.id
INNER JOIN /*schema*/task AS t ON t.id = r.task_id
WHERE w.retired_at IS NOT NULL
ORDER BY r.started_at, r.task_id
LIMIT $1
