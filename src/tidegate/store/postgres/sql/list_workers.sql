-- list_workers: list all workers that are not retired, and retired workers that still have runs.

-- name: list
SELECT
    w.id, w.name, w.pool, w.host, w.pid, w.queues, w.slots, w.started_at, w.heartbeat_at, w.expires_at, w.retired_at,
    coalesce(held.runs, 0) AS running, w.version, w.application, w.code, coalesce(w.most_slots, w.slots) AS most_slots
FROM /*schema*/worker AS w
LEFT JOIN (
    SELECT worker_id, count(*) AS runs
    FROM /*schema*/running
    GROUP BY worker_id
) AS held ON held.worker_id = w.id
WHERE w.retired_at IS NULL
    OR held.runs > 0
ORDER BY w.started_at, w.id
