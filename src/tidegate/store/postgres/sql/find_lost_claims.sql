-- find_lost_claims: the runs a worker holds by the store's word.

-- name: wait
-- A claim of this worker that is still under way on the server comes to its end first.
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
