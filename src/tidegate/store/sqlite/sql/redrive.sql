-- redrive: send dead tasks back to the main queue. The run number continues to rise, and the history stays.
-- moves: dead -> ready

-- name: letter
-- 1 task id
SELECT
    d.run, t.queue, t.priority, t.upstream, t.function, t.tenant,
    CASE WHEN t.unique_until_final THEN t.unique_name END
FROM dead AS d
CROSS JOIN task AS t ON t.id = d.task_id
WHERE d.task_id = ?1

-- name: leave
-- 1 task id
DELETE FROM dead
WHERE task_id = ?1

-- name: ready
-- 1 task id, 2 queue, 3 priority, 4 upstream, 5 function, 6 tenant, 7 rank, 8 now, 9 run
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: reset
-- 1 task id, 2 now, 3 queue, 4 whether charged attempts still count
UPDATE task
SET
    queue = ?3,
    attempts = CASE WHEN ?4 THEN attempts ELSE 0 END,
    parks = 0,
    crashes = 0,
    losses = 0,
    releases = 0,
    rule_attempts = CASE WHEN ?4 THEN rule_attempts END,
    redrives = redrives + 1,
    redriven_at = ?2,
    first_started_at = NULL,
    parked_at = NULL,
    paused_seconds = 0,
    deadline_at = CASE WHEN deadline_at <= ?2 THEN ?2 + deadline_seconds ELSE deadline_at END
WHERE id = ?1

-- name: payload
-- 1 task id, 2 arguments as bytes, 3 codec tag
UPDATE payload
SET
    args = ?2,
    codec_tag = ?3
WHERE task_id = ?1
