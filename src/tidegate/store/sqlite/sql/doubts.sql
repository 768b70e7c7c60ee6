-- doubts: the ledger of calls that were sent and have no definite answer.

-- shared: rows
SELECT
    e.id, e.task_id, t.function, t.queue, t.tenant, s.name, e.key, e.run, e.attempt, e.state, e.on_doubt, e.cause,
    e.upstream, e.request_id, e.sent_at, e.found_at, e.resolved_at, e.resolved_by, e.note
FROM doubt AS e
CROSS JOIN task AS t ON t.id = e.task_id
CROSS JOIN step AS s ON s.task_id = e.task_id AND s.key = e.key

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
-- 1 the id after which to continue, 2 how many at most, 3 state or NULL, 4 tenant or NULL
/*rows*/
WHERE e.id > ?1
    AND (?3 IS NULL OR e.state = ?3)
    AND (?4 IS NULL OR t.tenant = ?4)
ORDER BY e.id
LIMIT ?2

-- name: list_open
-- The same for the state `open`, through the index of open entries.
-- 1 the id after which to continue, 2 how many at most, 3 the state, 4 tenant or NULL
/*rows*/
WHERE e.id > ?1
    AND e.state = 'open'
    AND ?3 = 'open'
    AND (?4 IS NULL OR t.tenant = ?4)
ORDER BY e.id
LIMIT ?2

-- name: list_of_task
-- 1 the id after which to continue, 2 how many at most, 3 state or NULL, 4 tenant or NULL, 5 task id
/*rows*/
WHERE e.task_id = ?5
    AND e.id > ?1
    AND (?3 IS NULL OR e.state = ?3)
    AND (?4 IS NULL OR t.tenant = ?4)
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
