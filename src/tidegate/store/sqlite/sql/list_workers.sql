-- list_workers: list all workers that are not retired, and retired workers that still have runs.

-- name: list
SELECT
    w.id, w.name, w.pool, w.host, w.pid, w.queues, w.slots, w.started_at, w.heartbeat_at, w.expires_at,
    w.retired_at, count(r.task_id) AS running, w.version, w.application, w.code, coalesce(w.most_slots, w.slots) AS most_slots
FROM worker AS w
LEFT JOIN running AS r ON r.worker_id = w.id
GROUP BY w.id
HAVING w.retired_at IS NULL
    OR count(r.task_id) > 0
ORDER BY w.started_at, w.id
