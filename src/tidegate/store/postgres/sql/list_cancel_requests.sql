-- list_cancel_requests: list the runs of a worker whose cancel was requested.

-- name: requested
-- 1 worker id
SELECT task_id, run, cancel_forced
FROM /*schema*/running
WHERE worker_id = $1
    AND cancel_requested_at IS NOT NULL
ORDER BY task_id
