-- events: send events, and wait for them. A send, and the begin of a wait, of one name come one after the other, so that
-- one of them sees the other. The end of a run that waits locks the rows of its waits, and so does a send.

-- name: lock
-- Locks until the end of the transaction. The number is specific to Tidegate.
-- 1 tenant, 2 name
SELECT pg_advisory_xact_lock(7283115, hashtext($1 || '/' || $2))

-- name: is_current
-- 1 task id, 2 run
SELECT 1
FROM /*schema*/running
WHERE task_id = $1
    AND run = $2

-- name: begin_wait
-- 1 task id, 2 key, 3 tenant, 4 name, 5 now, 6 when it times out or NULL
INSERT INTO /*schema*/event_wait (task_id, key, tenant, name, state, since_at, deadline_at)
VALUES ($1, $2, $3, $4, 'open', $5, $6)
ON CONFLICT (task_id, key) DO NOTHING

-- name: wait
-- 1 task id, 2 key
SELECT state, deadline_at, codec_tag, data
FROM /*schema*/event_wait
WHERE task_id = $1
    AND key = $2

-- name: event
-- The first event of this name that the task has not received.
-- 1 tenant, 2 name, 3 task id, 4 now
SELECT e.id, e.codec_tag, e.data
FROM /*schema*/event AS e
WHERE e.tenant = $1
    AND e.name = $2
    AND e.expires_at > $4
    AND NOT EXISTS (SELECT 1 FROM /*schema*/event_wait AS w WHERE w.task_id = $3 AND w.event_id = e.id)
ORDER BY e.at, e.id
LIMIT 1

-- name: end_wait
-- 1 task id, 2 key, 3 state, 4 event or NULL, 5 codec tag, 6 data or NULL
UPDATE /*schema*/event_wait
SET state = $3, event_id = $4, codec_tag = $5, data = $6
WHERE task_id = $1
    AND key = $2
    AND state = 'open'

-- name: add
-- 1 id, 2 tenant, 3 name, 4 codec tag, 5 data, 6 now, 7 when it expires
INSERT INTO /*schema*/event (id, tenant, name, codec_tag, data, at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO NOTHING

-- name: deliver
-- End the first open wait for this name of each task that is not final; return the tasks.
-- 1 id, 2 tenant, 3 name, 4 codec tag, 5 data
WITH first AS (
    SELECT DISTINCT ON (w.task_id) w.task_id, w.key
    FROM /*schema*/event_wait AS w
    WHERE w.tenant = $2
        AND w.name = $3
        AND w.state = 'open'
        AND NOT EXISTS (SELECT 1 FROM /*schema*/archive AS a WHERE a.task_id = w.task_id)
        AND NOT EXISTS (SELECT 1 FROM /*schema*/event_wait AS o WHERE o.task_id = w.task_id AND o.event_id = $1)
    ORDER BY w.task_id, w.number
),
chosen AS MATERIALIZED (
    SELECT w.task_id, w.key
    FROM /*schema*/event_wait AS w
    INNER JOIN first AS f ON f.task_id = w.task_id AND f.key = w.key
    WHERE w.state = 'open'
    ORDER BY w.task_id
    FOR UPDATE OF w
)
UPDATE /*schema*/event_wait AS w
SET state = 'received', event_id = $1, codec_tag = $4, data = $5
FROM chosen AS c
WHERE w.task_id = c.task_id
    AND w.key = c.key
RETURNING w.task_id

-- name: wake
-- A task keeps the distance of its rank from the moment at which it wakes.
-- 1 task ids, 2 now
UPDATE /*schema*/waiting
SET rank = $2 + rank - coalesce(due_at, since_at), due_at = $2
WHERE task_id = ANY (ARRAY (
    SELECT task_id
    FROM /*schema*/waiting
    WHERE task_id = ANY ($1::uuid[])
        AND state = 'suspended'
        AND (due_at IS NULL OR due_at > $2)
    ORDER BY task_id
    FOR UPDATE
))

-- name: ended_waits
-- How many of these waits, for events and for approvals, are over. Their rows stay locked: a send or an answer that comes
-- now waits for the end of the transaction. MATERIALIZED, because a condition inside would leave the open waits unlocked.
-- 1 task id, 2 keys as a JSON array
WITH locked AS MATERIALIZED (
    SELECT state
    FROM /*schema*/event_wait
    WHERE task_id = $1
        AND key IN (SELECT jsonb_array_elements_text($2::text::jsonb))
    ORDER BY key
    FOR UPDATE
),
asked AS MATERIALIZED (
    SELECT state
    FROM /*schema*/approval
    WHERE task_id = $1
        AND key IN (SELECT jsonb_array_elements_text($2::text::jsonb))
    ORDER BY key
    FOR UPDATE
)
SELECT
    (SELECT count(*) FROM locked WHERE state <> 'open')
    + (SELECT count(*) FROM asked WHERE state <> 'open')
