-- send_letters: send some letters of a redrive to the main queue. `redrive` moves the letters.

-- name: pick
-- 1 operation, 2 queue, 3 upstream, 4 function, 5 whether only letters of the canary are picked, 6 how many at most
SELECT task_id
FROM operation_task
WHERE operation_id = ?1
    AND state = 'chosen'
    AND queue = ?2
    AND upstream = ?3
    AND function = ?4
    AND in_canary >= ?5
ORDER BY in_canary, lot, task_id
LIMIT ?6

-- name: live_retries
-- Whether retries of other tasks wait for the budget of an upstream or of the system.
-- 1 upstream
SELECT EXISTS (SELECT 1 FROM waiting WHERE held_by = 'system' AND held_by <> '')
    OR EXISTS (SELECT 1 FROM waiting WHERE held_by = 'upstream' AND held_by <> '' AND upstream = ?1)

-- name: letters
-- These letters, with the fields that a redrive changes, locked until the commit. Letters that are no longer dead, or
-- died again since they were chosen, are left out.
-- 1 operation, 2 ids: carray of 16-byte ids
SELECT
    d.task_id, d.queue, d.function, d.tenant, d.reason, d.error_class, d.message, d.run, d.worker_id, d.started_at,
    d.failed_at, d.upstream, d.fingerprint, t.queue AS task_queue, t.attempts, t.parks, t.crashes, t.losses,
    t.releases, t.rule_attempts, t.redrives, t.redriven_at, t.first_started_at, t.parked_at, t.paused_seconds, t.deadline_at
FROM carray(?2) AS given
CROSS JOIN operation_task AS o ON o.operation_id = ?1 AND o.task_id = given.value AND o.state = 'chosen'
CROSS JOIN dead AS d ON d.task_id = o.task_id AND d.run = o.run
CROSS JOIN task AS t ON t.id = d.task_id
ORDER BY d.task_id

-- name: sent
-- 1 task id, 2 letter before as JSON, 3 operation, 4 now
UPDATE operation_task
SET state = 'sent', was = ?2, sent_at = ?4
WHERE operation_id = ?3
    AND task_id = ?1

-- name: keep_args
-- 1 task id, 2 operation
UPDATE operation_task
SET
    args = (SELECT p.args FROM payload AS p WHERE p.task_id = ?1),
    codec_tag = (SELECT p.codec_tag FROM payload AS p WHERE p.task_id = ?1)
WHERE operation_id = ?2
    AND task_id = ?1

-- name: skip
-- 1 task id, 2 why, 3 operation
UPDATE operation_task
SET state = 'skipped', why = ?2, was = NULL, args = NULL, sent_at = NULL
WHERE operation_id = ?3
    AND task_id = ?1

-- name: begin_canary
-- 1 operation, 2 now
UPDATE operation
SET canary_at = coalesce(canary_at, ?2)
WHERE id = ?1

-- name: statuses
-- 1 operation
SELECT task_id, state
FROM operation_task
WHERE operation_id = ?1
