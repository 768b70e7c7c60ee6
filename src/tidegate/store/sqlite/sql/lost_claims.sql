-- lost_claims: the runs a worker holds by the store's word.

-- name: held
-- 1 worker id
SELECT task_id, run
FROM running
WHERE worker_id = ?1
ORDER BY task_id
