-- list_final_tasks: list final tasks, the oldest first, with the fields that decide how long they are kept.

-- name: archive
-- 1 moment and 2 id of the task after which to start, 3 at, 4 seconds since they became final, 5 how many at most
SELECT a.task_id, a.state, t.queue, t.tenant, t.redrives > 0, a.finished_at, a.now - a.finished_at
FROM (
    SELECT task_id, state, finished_at, c.now
    FROM /*schema*/archive, (SELECT /*schema*/moment($3) AS now) AS c
    WHERE finished_at >= $1::float8
        AND (finished_at, task_id) > ($1::float8, $2::uuid)
        AND finished_at < (SELECT /*schema*/moment($3) - $4::float8)
    ORDER BY finished_at, task_id
    LIMIT $5
) AS a
JOIN /*schema*/task AS t ON t.id = a.task_id
ORDER BY a.finished_at, a.task_id

-- name: dead
-- 1 moment and 2 id of the task after which to start, 3 at, 4 seconds since they died, 5 how many at most
SELECT task_id, 'dead', queue, tenant, false, failed_at, c.now - failed_at
FROM /*schema*/dead, (SELECT /*schema*/moment($3) AS now) AS c
WHERE failed_at >= $1::float8
    AND (failed_at, task_id) > ($1::float8, $2::uuid)
    AND failed_at < (SELECT /*schema*/moment($3) - $4::float8)
ORDER BY failed_at, task_id
LIMIT $5
