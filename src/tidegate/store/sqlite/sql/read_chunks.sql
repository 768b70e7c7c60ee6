-- read_chunks: read a part of one task's stream.

-- name: after
-- 1 task id, 2 sequence after which to continue, 3 how many at most
SELECT sequence, run, at, data
FROM chunk
WHERE task_id = ?1
    AND sequence > ?2
ORDER BY sequence
LIMIT ?3
