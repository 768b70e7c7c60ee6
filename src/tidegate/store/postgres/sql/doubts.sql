-- doubts: the ledger of calls that were sent and have no definite answer.

-- shared: rows
SELECT
    e.id, e.task_id, t.function, t.queue, t.tenant, s.name, e.key, e.run, e.attempt, e.state, e.on_doubt, e.cause,
    e.upstream, e.request_id, e.sent_at, e.found_at, e.resolved_at, e.resolved_by, e.note,
    e.input_tokens, e.output_tokens
FROM /*schema*/doubt AS e
JOIN /*schema*/task AS t ON t.id = e.task_id
JOIN /*schema*/step AS s ON s.task_id = e.task_id AND s.key = e.key

-- shared: decided_letters
SELECT
    d.task_id,
    (
        SELECT e.resolved_by
        FROM /*schema*/doubt AS e
        WHERE e.task_id = d.task_id
            AND e.on_doubt = 'ask'
            AND e.state <> 'open'
        ORDER BY e.resolved_at DESC, e.id DESC
        LIMIT 1
    )
FROM /*schema*/dead AS d
JOIN /*schema*/task AS t ON t.id = d.task_id
WHERE d.reason = 'in_doubt'
    AND NOT EXISTS (
        SELECT 1 FROM /*schema*/doubt AS e WHERE e.task_id = d.task_id AND e.state = 'open' AND e.on_doubt = 'ask'
    )
    AND EXISTS (
        SELECT 1
        FROM /*schema*/doubt AS e
        WHERE e.task_id = d.task_id
            AND e.state <> 'open'
            AND e.on_doubt = 'ask'
            AND (t.redriven_at IS NULL OR e.resolved_at > t.redriven_at)
    )

-- name: has_new
SELECT 1
FROM /*schema*/step AS s
WHERE s.state = 'open'
    AND s.doubted = 0
    AND NOT EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = s.task_id AND r.run = s.run)
LIMIT 1

-- name: lock_new
-- 1 how many at most
SELECT s.task_id, s.key
FROM /*schema*/step AS s
WHERE s.state = 'open'
    AND s.doubted = 0
    AND NOT EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = s.task_id AND r.run = s.run)
ORDER BY s.task_id, s.key
LIMIT $1
FOR UPDATE OF s SKIP LOCKED

-- name: enter
-- Returns a row for a new entry. A step that has begun again since `lock_new` chose it is left out.
-- 1 task ids, 2 keys: arrays, 3 at, 4 cause
INSERT INTO /*schema*/doubt (
    task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at
)
SELECT s.task_id, s.key, s.run, s.attempt, 'open', s.on_doubt, $4, s.upstream, '', s.begun_at, m.now
FROM (SELECT /*schema*/moment($3) AS now) AS m
CROSS JOIN unnest($1::uuid[], $2::text[]) AS g (task_id, key)
JOIN /*schema*/step AS s ON s.task_id = g.task_id AND s.key = g.key
WHERE s.state = 'open'
    AND NOT EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = s.task_id AND r.run = s.run)
ON CONFLICT (task_id, key, run, attempt) DO NOTHING
RETURNING id

-- name: mark
-- 1 task ids, 2 keys: arrays
UPDATE /*schema*/step AS s
SET doubted = 1
FROM unnest($1::uuid[], $2::text[]) AS g (task_id, key)
WHERE s.task_id = g.task_id
    AND s.key = g.key
    AND EXISTS (
        SELECT 1
        FROM /*schema*/doubt AS e
        WHERE e.task_id = s.task_id
            AND e.key = s.key
            AND e.run = s.run
            AND e.attempt = s.attempt
    )

-- name: list
-- 1 the id after which to continue, 2 how many at most, 3 state or NULL, 4 tenant, 5 function, 6 upstream, 7 moment before
-- which it was sent (each NULL for any)
/*rows*/
WHERE e.id > $1
    AND ($3::text IS NULL OR e.state = $3)
    AND ($4::text IS NULL OR t.tenant = $4)
    AND ($5::text IS NULL OR t.function = $5)
    AND ($6::text IS NULL OR e.upstream = $6)
    AND ($7::float8 IS NULL OR e.sent_at < $7)
ORDER BY e.id
LIMIT $2

-- name: list_open
-- The same for the state `open`, through the index of open entries.
-- 1 the id after which to continue, 2 how many at most, 3 the state, 4 tenant, 5 function, 6 upstream, 7 moment before
-- which it was sent (each NULL for any)
/*rows*/
WHERE e.id > $1
    AND e.state = 'open'
    AND $3::text = 'open'
    AND ($4::text IS NULL OR t.tenant = $4)
    AND ($5::text IS NULL OR t.function = $5)
    AND ($6::text IS NULL OR e.upstream = $6)
    AND ($7::float8 IS NULL OR e.sent_at < $7)
ORDER BY e.id
LIMIT $2

-- name: list_of_task
-- 1 the id after which to continue, 2 how many at most, 3 state or NULL, 4 tenant, 5 function, 6 upstream, 7 moment before
-- which it was sent (each NULL for any), 8 task id
/*rows*/
WHERE e.task_id = $8::uuid
    AND e.id > $1
    AND ($3::text IS NULL OR e.state = $3)
    AND ($4::text IS NULL OR t.tenant = $4)
    AND ($5::text IS NULL OR t.function = $5)
    AND ($6::text IS NULL OR e.upstream = $6)
    AND ($7::float8 IS NULL OR e.sent_at < $7)
ORDER BY e.id
LIMIT $2

-- name: count_open
-- Entries that wait for a person.
-- 1 ids
SELECT task_id, count(*)
FROM /*schema*/doubt
WHERE task_id = ANY ($1::uuid[])
    AND state = 'open'
    AND on_doubt = 'ask'
GROUP BY task_id

-- name: count_all_open
SELECT count(*)
FROM /*schema*/doubt
WHERE state = 'open'

-- name: lock
-- The steps are locked before the entries are read.
-- 1 ids of entries as a JSON array, 2 tenant or NULL
SELECT 1
FROM /*schema*/step AS s
JOIN /*schema*/doubt AS e ON e.task_id = s.task_id AND e.key = s.key
JOIN /*schema*/task AS t ON t.id = e.task_id
WHERE e.id IN (SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb))
    AND ($2::text IS NULL OR t.tenant = $2)
ORDER BY s.task_id, s.key
FOR UPDATE OF s

-- name: entries
-- 1 ids of entries as a JSON array, 2 tenant or NULL
SELECT e.id, e.task_id, e.key, e.state, e.resolved_by, e.note
FROM /*schema*/doubt AS e
JOIN /*schema*/task AS t ON t.id = e.task_id
WHERE e.id IN (SELECT value::bigint FROM jsonb_array_elements_text($1::jsonb))
    AND ($2::text IS NULL OR t.tenant = $2)

-- name: decide_step
-- A result that a person gave has attempt 0.
-- 1 task ids, 2 keys: arrays, 3 at, 4 state, 5 result or NULL, 6 codec
UPDATE /*schema*/step AS s
SET
    state = $4,
    attempt = CASE $4 WHEN 'done' THEN 0 ELSE s.attempt END,
    ended_at = /*schema*/moment($3),
    data = $5,
    codec = $6
FROM unnest($1::uuid[], $2::text[]) AS g (task_id, key)
WHERE s.task_id = g.task_id
    AND s.key = g.key
    AND s.state = 'open'

-- name: decide
-- 1 ids: array, 2 at, 3 state, 4 who, 5 note
UPDATE /*schema*/doubt
SET
    state = $3,
    resolved_at = /*schema*/moment($2),
    resolved_by = $4,
    note = $5
WHERE id = ANY ($1::bigint[])

-- name: decided
-- Dead letters that waited for a person and wait no more, each with who decided last.
-- 1 the id after which to continue or NULL, 2 how many at most
/*decided_letters*/
    AND ($1::uuid IS NULL OR d.task_id > $1)
ORDER BY d.task_id
LIMIT $2

-- name: decided_of
-- The same among these tasks.
-- 1 ids
/*decided_letters*/
    AND d.task_id = ANY ($1::uuid[])
ORDER BY d.task_id

-- name: letters_in_doubt
-- Those of these tasks that are dead and whose calls may have been processed.
-- 1 ids
SELECT d.task_id
FROM /*schema*/dead AS d
WHERE d.task_id = ANY ($1::uuid[])
    AND (
        d.reason = 'in_doubt'
        OR EXISTS (SELECT 1 FROM /*schema*/step AS s WHERE s.task_id = d.task_id AND s.state = 'open')
    )

-- name: repeat
-- Enter the open steps of dead tasks as calls that will be repeated.
-- 1 task ids: array, 2 at, 3 cause if the step has none, 4 who, 5 note
INSERT INTO /*schema*/doubt AS e (
    task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at, resolved_at, resolved_by,
    note, input_tokens, output_tokens
)
SELECT
    s.task_id, s.key, s.run, s.attempt, 'repeated', s.on_doubt, coalesce(nullif(s.cause, ''), $3), s.upstream,
    s.request_id, s.begun_at, m.now, m.now, $4, $5, s.input_tokens, s.output_tokens
FROM (SELECT /*schema*/moment($2) AS now) AS m
CROSS JOIN unnest($1::uuid[]) AS g (task_id)
JOIN /*schema*/step AS s ON s.task_id = g.task_id
WHERE s.state = 'open'
ON CONFLICT (task_id, key, run, attempt) DO UPDATE
SET
    state = excluded.state,
    resolved_at = excluded.resolved_at,
    resolved_by = excluded.resolved_by,
    note = excluded.note
WHERE e.state = 'open'

-- name: repeat_steps
-- Let the next run begin these steps again.
-- 1 task ids: array, 2 at
UPDATE /*schema*/step
SET
    state = 'failed',
    ended_at = /*schema*/moment($2),
    doubted = 1
WHERE task_id = ANY ($1::uuid[])
    AND state = 'open'

-- name: reopen_steps
-- Put back what `repeat_steps` changed.
-- 1 task ids: array, 2 note
UPDATE /*schema*/step AS s
SET
    state = 'open',
    ended_at = NULL
FROM /*schema*/doubt AS e
WHERE s.task_id = ANY ($1::uuid[])
    AND s.state = 'failed'
    AND e.task_id = s.task_id
    AND e.key = s.key
    AND e.run = s.run
    AND e.attempt = s.attempt
    AND e.state = 'repeated'
    AND e.note = $2

-- name: reopen
-- Put back what `repeat` changed.
-- 1 task ids: array, 2 note
UPDATE /*schema*/doubt
SET
    state = 'open',
    resolved_at = NULL,
    resolved_by = '',
    note = ''
WHERE task_id = ANY ($1::uuid[])
    AND state = 'repeated'
    AND note = $2
