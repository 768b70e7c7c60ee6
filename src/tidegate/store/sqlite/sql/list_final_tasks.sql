-- list_final_tasks: list final tasks, the oldest first, with the fields that decide how long they are kept.

-- name: archive
-- 1 moment and 2 id of the task after which to start, 3 at, 4 seconds since they became final, 5 how many at most
SELECT a.task_id, a.state, t.queue, t.tenant, t.redrives > 0, a.finished_at, ?3 - a.finished_at
FROM archive AS a
CROSS JOIN task AS t ON t.id = a.task_id
WHERE (a.finished_at, a.task_id) > (?1, ?2)
    AND a.finished_at < ?3 - ?4
ORDER BY a.finished_at, a.task_id
LIMIT ?5

-- name: dead
-- 1 moment and 2 id of the task after which to start, 3 at, 4 seconds since they died, 5 how many at most
SELECT d.task_id, 'dead', d.queue, d.tenant, 0, d.failed_at, ?3 - d.failed_at
FROM dead AS d
WHERE (d.failed_at, d.task_id) > (?1, ?2)
    AND d.failed_at < ?3 - ?4
ORDER BY d.failed_at, d.task_id
LIMIT ?5
