-- delete_retired_workers: delete retired workers without runs.

-- name: forget
-- 1 at, 2 seconds since they were retired
DELETE FROM /*schema*/worker AS w
WHERE w.retired_at < (SELECT /*schema*/moment($1) - $2::float8)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.worker_id = w.id)
