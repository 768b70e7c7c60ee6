-- promote: move what is due into the main queue, the longest due first, in short batches. Its rank is the
-- one it was given when it began to wait.
-- moves: scheduled -> ready, retrying -> ready

-- name: due
-- Read from the index `waiting_due`; what is not due is never looked at. The sign keeps SQLite from taking the
-- index by state instead, which would sort everything that waits.
-- 1 now, 2 how many at most
SELECT task_id
FROM waiting
WHERE due_at <= ?1
    AND +state IN ('scheduled', 'retrying')
ORDER BY due_at
LIMIT ?2

-- name: ready
-- 1 ids: carray of 16-byte ids
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT w.task_id, w.queue, w.priority, w.upstream, w.function, w.tenant, w.rank, w.due_at, w.run
FROM carray(?1) AS given
CROSS JOIN waiting AS w ON w.task_id = given.value

-- name: leave
-- 1 ids: carray of 16-byte ids
DELETE FROM waiting
WHERE task_id IN (SELECT value FROM carray(?1))
