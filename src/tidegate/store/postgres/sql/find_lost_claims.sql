-- find_lost_claims: find the runs that the store has for a worker.

-- name: wait
-- Wait until a claim of this worker that still runs on the server has ended.
-- 1 worker id
SELECT id
FROM /*schema*/worker
WHERE id = $1
FOR UPDATE

-- name: held
-- 1 worker id
SELECT task_id, run
FROM /*schema*/running
WHERE worker_id = $1
ORDER BY task_id
