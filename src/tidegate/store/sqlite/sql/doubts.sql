-- doubts: the ledger of calls that were sent and have no definite answer.

-- shared: rows
SELECT
    e.id, e.task_id, t.function, t.queue, t.tenant, s.name, e.key, e.run, e.attempt, e.state, e.on_doubt, e.cause,
    e.upstream, e.request_id, e.sent_at, e.found_at, e.resolved_at, e.resolved_by, e.note,
    e.input_tokens, e.output_tokens
FROM doubt AS e
CROSS JOIN task AS t ON t.id = e.task_id
CROSS JOIN step AS s ON s.task_id = e.task_id AND s.key = e.key

-- shared: decided_letters
SELECT
    d.task_id,
    (
        SELECT e.resolved_by
        FROM doubt AS e
        WHERE e.task_id = d.task_id
            AND e.on_doubt = 'ask'
            AND e.state <> 'open'
        ORDER BY e.resolved_at DESC, e.id DESC
        LIMIT 1
    )
FROM dead AS d
CROSS JOIN task AS t ON t.id = d.task_id
WHERE d.reason = 'in_doubt'
    AND NOT EXISTS (
        SELECT 1 FROM doubt AS e WHERE e.task_id = d.task_id AND e.state = 'open' AND e.on_doubt = 'ask'
    )
    AND EXISTS (
        SELECT 1
        FROM doubt AS e
        WHERE e.task_id = d.task_id
            AND e.state <> 'open'
            AND e.on_doubt = 'ask'
            AND (t.redriven_at IS NULL OR e.resolved_at > t.redriven_at)
    )

-- name: has_new
SELECT 1
FROM step AS s
WHERE s.state = 'open'
    AND s.doubted = 0
    AND NOT EXISTS (SELECT 1 FROM running AS r WHERE r.task_id = s.task_id AND r.run = s.run)
LIMIT 1

-- name: lock_new
-- 1 how many at most
SELECT s.task_id, s.key
FROM step AS s
WHERE s.state = 'open'
    AND s.doubted = 0
    AND NOT EXISTS (SELECT 1 FROM running AS r WHERE r.task_id = s.task_id AND r.run = s.run)
LIMIT ?1

-- name: enter
-- Returns a row for a new entry.
-- 1 task id, 2 key, 3 now, 4 cause
INSERT INTO doubt (task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at)
SELECT task_id, key, run, attempt, 'open', on_doubt, ?4, upstream, '', begun_at, ?3
FROM step
WHERE task_id = ?1
    AND key = ?2
ON CONFLICT (task_id, key, run, attempt) DO NOTHING
RETURNING id

-- name: mark
-- 1 task id, 2 key
UPDATE step
SET doubted = 1
WHERE task_id = ?1
    AND key = ?2

-- name: list
-- 1 the id after which to continue, 2 how many at most, 3 state or NULL, 4 tenant, 5 function, 6 upstream, 7 moment before
-- which it was sent (each NULL for any)
/*rows*/
WHERE e.id > ?1
    AND (?3 IS NULL OR e.state = ?3)
    AND (?4 IS NULL OR t.tenant = ?4)
    AND (?5 IS NULL OR t.function = ?5)
    AND (?6 IS NULL OR e.upstream = ?6)
    AND (?7 IS NULL OR e.sent_at < ?7)
ORDER BY e.id
LIMIT ?2

-- name: list_open
-- The same for the state `open`, through the index of open entries.
-- 1 the id after which to continue, 2 how many at most, 3 the state, 4 tenant, 5 function, 6 upstream, 7 moment before
-- which it was sent (each NULL for any)
/*rows*/
WHERE e.id > ?1
    AND e.state = 'open'
    AND ?3 = 'open'
    AND (?4 IS NULL OR t.tenant = ?4)
    AND (?5 IS NULL OR t.function = ?5)
    AND (?6 IS NULL OR e.upstream = ?6)
    AND (?7 IS NULL OR e.sent_at < ?7)
ORDER BY e.id
LIMIT ?2

-- name: list_of_task
-- 1 the id after which to continue, 2 how many at most, 3 state or NULL, 4 tenant, 5 function, 6 upstream, 7 moment before
-- which it was sent (each NULL for any), 8 task id
/*rows*/
WHERE e.task_id = ?8
    AND e.id > ?1
    AND (?3 IS NULL OR e.state = ?3)
    AND (?4 IS NULL OR t.tenant = ?4)
    AND (?5 IS NULL OR t.function = ?5)
    AND (?6 IS NULL OR e.upstream = ?6)
    AND (?7 IS NULL OR e.sent_at < ?7)
ORDER BY e.id
LIMIT ?2

-- name: count_open
-- Entries that wait for a person.
-- 1 ids: carray of 16-byte ids
SELECT task_id, count(*)
FROM doubt
WHERE task_id IN (SELECT value FROM carray(?1))
    AND state = 'open'
    AND on_doubt = 'ask'
GROUP BY task_id

-- name: count_all_open
SELECT count(*)
FROM doubt
WHERE state = 'open'

-- name: lock
-- Nothing needs to be locked here: writers take turns.
-- 1 ids of entries as a JSON array, 2 tenant or NULL
SELECT 1
WHERE ?1 IS NULL
    AND ?2 IS NULL

-- name: entries
-- 1 ids of entries as a JSON array, 2 tenant or NULL
SELECT e.id, e.task_id, e.key, e.state, e.resolved_by, e.note
FROM json_each(?1) AS given
CROSS JOIN doubt AS e ON e.id = given.value
CROSS JOIN task AS t ON t.id = e.task_id
WHERE ?2 IS NULL
    OR t.tenant = ?2

-- name: decide_step
-- A result that a person gave has attempt 0.
-- 1 task id, 2 key, 3 now, 4 state, 5 result or NULL, 6 codec
UPDATE step
SET
    state = ?4,
    attempt = CASE ?4 WHEN 'done' THEN 0 ELSE attempt END,
    ended_at = ?3,
    data = ?5,
    codec = ?6
WHERE task_id = ?1
    AND key = ?2
    AND state = 'open'

-- name: decide
-- 1 id, 2 now, 3 state, 4 who, 5 note
UPDATE doubt
SET
    state = ?3,
    resolved_at = ?2,
    resolved_by = ?4,
    note = ?5
WHERE id = ?1

-- name: decided
-- Dead letters that waited for a person and wait no more, each with who decided last.
-- 1 the id after which to continue or NULL, 2 how many at most
/*decided_letters*/
    AND (?1 IS NULL OR d.task_id > ?1)
ORDER BY d.task_id
LIMIT ?2

-- name: decided_of
-- The same among these tasks.
-- 1 ids: carray of 16-byte ids
/*decided_letters*/
    AND d.task_id IN (SELECT value FROM carray(?1))
ORDER BY d.task_id

-- name: letters_in_doubt
-- Those of these tasks that are dead and whose calls may have been processed.
-- 1 ids: carray of 16-byte ids
SELECT d.task_id
FROM dead AS d
WHERE d.task_id IN (SELECT value FROM carray(?1))
    AND (
        d.reason = 'in_doubt'
        OR EXISTS (SELECT 1 FROM step AS s WHERE s.task_id = d.task_id AND s.state = 'open')
    )

-- name: repeat
-- Enter the open steps of a dead task as calls that will be repeated.
-- 1 task id, 2 now, 3 cause if the step has none, 4 who, 5 note
INSERT INTO doubt AS e (
    task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at, resolved_at, resolved_by,
    note, input_tokens, output_tokens
)
SELECT
    task_id, key, run, attempt, 'repeated', on_doubt, coalesce(nullif(cause, ''), ?3), upstream, request_id, begun_at, ?2,
    ?2, ?4, ?5, input_tokens, output_tokens
FROM step
WHERE task_id = ?1
    AND state = 'open'
ON CONFLICT (task_id, key, run, attempt) DO UPDATE
SET
    state = excluded.state,
    resolved_at = excluded.resolved_at,
    resolved_by = excluded.resolved_by,
    note = excluded.note
WHERE e.state = 'open'

-- name: repeat_steps
-- Let the next run begin these steps again.
-- 1 task id, 2 now
UPDATE step
SET
    state = 'failed',
    ended_at = ?2,
    doubted = 1
WHERE task_id = ?1
    AND state = 'open'

-- name: reopen_steps
-- Put back what `repeat_steps` changed.
-- 1 task id, 2 note
UPDATE step AS s
SET
    state = 'open',
    ended_at = NULL
WHERE s.task_id = ?1
    AND s.state = 'failed'
    AND EXISTS (
        SELECT 1
        FROM doubt AS e
        WHERE e.task_id = s.task_id
            AND e.key = s.key
            AND e.run = s.run
            AND e.attempt = s.attempt
            AND e.state = 'repeated'
            AND e.note = ?2
    )

-- name: reopen
-- Put back what `repeat` changed.
-- 1 task id, 2 note
UPDATE doubt
SET
    state = 'open',
    resolved_at = NULL,
    resolved_by = '',
    note = ''
WHERE task_id = ?1
    AND state = 'repeated'
    AND note = ?2
