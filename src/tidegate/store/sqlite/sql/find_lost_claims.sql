-- find_lost_claims: find the runs that the store has for a worker.

-- name: wait
-- There is no need to wait: a claim on the writing thread has already ended.
-- 1 worker id
SELECT id
FROM worker
WHERE id = ?1

-- name: held
-- 1 worker id
SELECT task_id, run
FROM running
WHERE worker_id = ?1
ORDER BY task_id
