-- operations: what people do to many dead letters at once. Each step of an operation first takes the operation's row,
-- so that two processes never do the same step.

-- name: add
-- Returns a row unless the operation exists.
-- 1 id, 2 kind, 3 state, 4 who, 5 tenant or NULL, 6 filter as JSON, 7 settings as JSON, 8 preview, 9 now
INSERT INTO operation (id, kind, state, started_by, tenant, filter, settings, preview, started_at, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: one
-- 1 id
SELECT
    id, kind, state, started_by, tenant, filter, settings, preview, chosen, sent, succeeded, died, cancelled, skipped,
    undone, cursor, canary, canary_at, note, started_at, changed_at, ended_at, revision
FROM operation
WHERE id = ?1

-- name: page
-- Operations, the latest first.
-- 1 tenant or NULL for all, 2 start and 3 id after which to continue (NULL to start), 4 how many at most
SELECT
    id, kind, state, started_by, tenant, filter, settings, preview, chosen, sent, succeeded, died, cancelled, skipped,
    undone, cursor, canary, canary_at, note, started_at, changed_at, ended_at, revision
FROM operation
WHERE (?1 IS NULL OR tenant = ?1)
    AND (?2 IS NULL OR (started_at, id) < (?2, ?3))
ORDER BY started_at DESC, id DESC
LIMIT ?4

-- name: open
-- Operations that have a next step, or letters without an outcome.
SELECT
    id, kind, state, started_by, tenant, filter, settings, preview, chosen, sent, succeeded, died, cancelled, skipped,
    undone, cursor, canary, canary_at, note, started_at, changed_at, ended_at, revision
FROM operation
WHERE ended_at IS NULL
    OR sent > succeeded + died + cancelled + undone
ORDER BY id

-- name: ids
-- 1 smallest id, 2 largest id
SELECT id
FROM operation
WHERE id BETWEEN ?1 AND ?2
ORDER BY id
LIMIT 2

-- name: take
-- Returns a row if the operation still has the revision from which the step was planned. Locked until the commit.
-- 1 id, 2 revision, 3 now
UPDATE operation
SET revision = revision + 1, changed_at = ?3
WHERE id = ?1
    AND revision = ?2
RETURNING id

-- name: go_on
-- Returns a row if the operation is still in this state. Locked until the commit.
-- 1 id, 2 state, 3 now
UPDATE operation
SET revision = revision + 1, changed_at = ?3
WHERE id = ?1
    AND state = ?2
RETURNING id

-- name: count
-- 1 id, 2 chosen, 3 sent, 4 succeeded, 5 died, 6 cancelled, 7 skipped, 8 undone
UPDATE operation
SET
    chosen = chosen + ?2,
    sent = sent + ?3,
    succeeded = succeeded + ?4,
    died = died + ?5,
    cancelled = cancelled + ?6,
    skipped = skipped + ?7,
    undone = undone + ?8
WHERE id = ?1

-- name: set_state
-- 1 id, 2 state, 3 note, 4 moment of its end or NULL
UPDATE operation
SET state = ?2, note = ?3, ended_at = ?4
WHERE id = ?1

-- name: set_note
-- 1 id, 2 what it waits for
UPDATE operation
SET note = ?2
WHERE id = ?1
    AND note <> ?2

-- name: letters
-- 1 operation, 2 state or NULL for any, 3 task id after which to continue or NULL, 4 how many at most
SELECT task_id, state, queue, upstream, function, tenant, in_canary, sent_at, first_try, why
FROM operation_task
WHERE operation_id = ?1
    AND (?2 IS NULL OR state = ?2)
    AND (?3 IS NULL OR task_id > ?3)
ORDER BY task_id
LIMIT ?4
