-- undo_letters: take redriven letters that have not started out of the main queue, and make them dead letters again.
-- moves: ready -> dead

-- name: pick
-- 1 operation, 2 how many at most
SELECT o.task_id, o.run, o.was, o.args, o.codec_tag
FROM operation_task AS o
CROSS JOIN ready AS r ON r.task_id = o.task_id AND r.run = o.run
WHERE o.operation_id = ?1
    AND o.state = 'sent'
    AND o.was IS NOT NULL
ORDER BY o.task_id
LIMIT ?2

-- name: leave
-- Returns the letter if no worker has claimed it meanwhile.
-- 1 task id, 2 run that died
DELETE FROM ready
WHERE task_id = ?1
    AND run = ?2
RETURNING task_id

-- name: dead
-- 1 task id, 2 queue, 3 function, 4 tenant, 5 reason, 6 error class, 7 message, 8 run, 9 worker or NULL, 10 start or
-- NULL, 11 failure, 12 upstream or NULL, 13 fingerprint or NULL
INSERT INTO dead (
    task_id, queue, function, tenant, reason, error_class, message, run, worker_id, started_at, failed_at, upstream,
    fingerprint
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)

-- name: task
-- 1 task id, 2 queue, 3 attempts, 4 parks, 5 crashes, 6 losses, 7 releases, 8 attempts by rule as JSON or NULL,
-- 9 redrives, 10 last redrive or NULL, 11 first start or NULL, 12 parked since or NULL, 13 paused seconds,
-- 14 deadline or NULL
UPDATE task
SET
    queue = ?2,
    attempts = ?3,
    parks = ?4,
    crashes = ?5,
    losses = ?6,
    releases = ?7,
    rule_attempts = ?8,
    redrives = ?9,
    redriven_at = ?10,
    first_started_at = ?11,
    parked_at = ?12,
    paused_seconds = ?13,
    deadline_at = ?14
WHERE id = ?1

-- name: args
-- 1 task id, 2 arguments as bytes, 3 codec tag
UPDATE payload
SET args = ?2, codec_tag = ?3
WHERE task_id = ?1

-- name: undone
-- 1 task id, 2 operation
UPDATE operation_task
SET state = 'undone', was = NULL, args = NULL
WHERE operation_id = ?2
    AND task_id = ?1

-- name: drop_chosen
-- Letters that were never sent.
-- 1 operation, 2 how many at most
UPDATE operation_task
SET state = 'skipped', why = 'not sent'
WHERE operation_id = ?1
    AND task_id IN (
        SELECT task_id
        FROM operation_task
        WHERE operation_id = ?1
            AND state = 'chosen'
        LIMIT ?2
    )
RETURNING task_id

-- name: free_unique
-- Free the unique name that a task holds until it is final.
-- 1 task id
DELETE FROM key
WHERE (kind, tenant, name) = (
        SELECT 'unique', tenant, unique_name
        FROM task
        WHERE id = ?1
            AND unique_until_final
    )
    AND task_id = ?1

-- name: note
-- 1 task id, 2 why, 3 now
INSERT INTO action (task_id, at, kind, why)
VALUES (?1, ?3, 'redrive undone', ?2)
ON CONFLICT (task_id, at, kind) DO UPDATE
SET why = excluded.why
