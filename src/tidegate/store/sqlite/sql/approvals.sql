-- approvals: what tasks ask people, and what people answer. A question, its answer and the end of a run that waits for it
-- come one after the other, because SQLite has one writer.

-- shared: rows
SELECT
    a.number, a.task_id, t.function, t.queue, t.tenant,
    coalesce(
        (SELECT f.state FROM archive AS f WHERE f.task_id = a.task_id),
        (SELECT 'dead' FROM dead AS d WHERE d.task_id = a.task_id)
    ),
    a.key, /*state*/, a.question, a.recipient, a.data, a.codec_tag, a.run, a.asks, a.asked_at, a.deadline_at,
    a.answered_at, a.answered_by, a.comment, a.answer
FROM approval AS a
CROSS JOIN task AS t ON t.id = a.task_id

-- shared: state
CASE WHEN a.state = 'open' AND a.deadline_at <= ?3 THEN 'timed_out' ELSE a.state END

-- name: ask
-- 1 task id, 2 key, 3 question, 4 recipient, 5 codec tag, 6 data, 7 run, 8 now, 9 when it times out or NULL
INSERT INTO approval (
    task_id, key, state, question, recipient, codec_tag, data, run, asks, asked_at, deadline_at
)
VALUES (?1, ?2, 'open', ?3, ?4, ?5, ?6, ?7, 1, ?8, ?9)
ON CONFLICT (task_id, key) DO NOTHING

-- name: ask_again
-- The same for a question that has timed out.
-- 1 task id, 2 key, 3 question, 4 recipient, 5 codec tag, 6 data, 7 run, 8 now, 9 when it times out or NULL
UPDATE approval
SET
    state = 'open',
    question = ?3,
    recipient = ?4,
    codec_tag = ?5,
    data = ?6,
    run = ?7,
    asks = asks + 1,
    asked_at = ?8,
    deadline_at = ?9,
    answered_at = NULL
WHERE task_id = ?1
    AND key = ?2
    AND state = 'timed_out'

-- name: asked
-- What became of a question, and when its task was redriven last.
-- 1 task id, 2 key
SELECT
    a.state, a.asks, a.asked_at, a.deadline_at, a.answered_at, a.answered_by, a.comment, a.answer, t.redriven_at
FROM approval AS a
CROSS JOIN task AS t ON t.id = a.task_id
WHERE a.task_id = ?1
    AND a.key = ?2

-- name: time_out
-- 1 task id, 2 key
UPDATE approval
SET state = 'timed_out', answered_at = deadline_at
WHERE task_id = ?1
    AND key = ?2
    AND state = 'open'

-- name: lock
-- Nothing needs to be locked here: writers take turns.
-- 1 task id, 2 key
SELECT number
FROM approval
WHERE task_id = ?1
    AND key = ?2

-- name: answer
-- 1 task id, 2 key, 3 state, 4 now, 5 who, 6 comment, 7 codec tag, 8 data
UPDATE approval
SET
    state = ?3,
    answered_at = ?4,
    answered_by = ?5,
    comment = ?6,
    answer_tag = ?7,
    answer = ?8
WHERE task_id = ?1
    AND key = ?2
    AND state = 'open'

-- name: record
-- Adds the answer to the history of the task. Two answers at one moment are one entry.
-- 1 task id, 2 now, 3 kind, 4 text
INSERT INTO action (task_id, at, kind, why)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (task_id, at, kind) DO UPDATE
SET why = why || '; ' || excluded.why

-- name: list
-- 1 the number after which to continue, 2 how many at most, 3 now, 4 state or NULL, 5 tenant, 6 function (each NULL for any)
/*rows*/
WHERE a.number > ?1
    AND (?4 IS NULL OR /*state*/ = ?4)
    AND (?5 IS NULL OR t.tenant = ?5)
    AND (?6 IS NULL OR t.function = ?6)
ORDER BY a.number
LIMIT ?2

-- name: list_open
-- Those that a person can answer, through the index of open ones.
-- 1 the number after which to continue, 2 how many at most, 3 now, 4 the state, 5 tenant, 6 function (each NULL for any)
/*rows*/
WHERE a.number > ?1
    AND a.state = 'open'
    AND ?4 = 'open'
    AND (a.deadline_at IS NULL OR a.deadline_at > ?3)
    AND (?5 IS NULL OR t.tenant = ?5)
    AND (?6 IS NULL OR t.function = ?6)
    AND NOT EXISTS (SELECT 1 FROM archive AS f WHERE f.task_id = a.task_id)
    AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = a.task_id)
ORDER BY a.number
LIMIT ?2

-- name: list_of_task
-- 1 the number after which to continue, 2 how many at most, 3 now, 4 state or NULL, 5 tenant, 6 function, 7 key (each NULL
-- for any), 8 task id
/*rows*/
WHERE a.task_id = ?8
    AND a.number > ?1
    AND (?4 IS NULL OR /*state*/ = ?4)
    AND (?5 IS NULL OR t.tenant = ?5)
    AND (?6 IS NULL OR t.function = ?6)
    AND (?7 IS NULL OR a.key = ?7)
ORDER BY a.number
LIMIT ?2
