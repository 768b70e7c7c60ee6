-- find_lost_claims: the runs a worker holds by the store's word.

-- name: wait
-- A claim on the writing thread has ended already: nothing to wait for.
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
