-- delete_retired_workers: delete retired workers without runs.

-- name: forget
-- 1 at, 2 seconds since they were retired
DELETE FROM worker
WHERE retired_at < ?1 - ?2
    AND NOT EXISTS (SELECT 1 FROM running AS r WHERE r.worker_id = worker.id)
