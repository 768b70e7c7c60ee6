-- events: send events, and wait for them. A send, and the begin of a wait, of one name come one after the other, so that
-- one of them sees the other. The end of a run that waits locks the rows of its waits, and so does a send.

-- name: lock
-- Nothing to do: SQLite has one writer.
-- 1 tenant, 2 name
SELECT ?1, ?2

-- name: is_current
-- 1 task id, 2 run
SELECT 1
FROM running
WHERE task_id = ?1
    AND run = ?2

-- name: begin_wait
-- 1 task id, 2 key, 3 tenant, 4 name, 5 now, 6 when it times out or NULL
INSERT INTO event_wait (task_id, key, tenant, name, state, since_at, deadline_at)
VALUES (?1, ?2, ?3, ?4, 'open', ?5, ?6)
ON CONFLICT (task_id, key) DO NOTHING

-- name: wait
-- 1 task id, 2 key
SELECT state, deadline_at, codec_tag, data
FROM event_wait
WHERE task_id = ?1
    AND key = ?2

-- name: event
-- The first event of this name that the task has not received.
-- 1 tenant, 2 name, 3 task id, 4 now
SELECT e.id, e.codec_tag, e.data
FROM event AS e
WHERE e.tenant = ?1
    AND e.name = ?2
    AND e.expires_at > ?4
    AND NOT EXISTS (SELECT 1 FROM event_wait AS w WHERE w.task_id = ?3 AND w.event_id = e.id)
ORDER BY e.at, e.id
LIMIT 1

-- name: end_wait
-- 1 task id, 2 key, 3 state, 4 event or NULL, 5 codec tag, 6 data or NULL
UPDATE event_wait
SET state = ?3, event_id = ?4, codec_tag = ?5, data = ?6
WHERE task_id = ?1
    AND key = ?2
    AND state = 'open'

-- name: add
-- 1 id, 2 tenant, 3 name, 4 codec tag, 5 data, 6 now, 7 when it expires
INSERT INTO event (id, tenant, name, codec_tag, data, at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO NOTHING

-- name: deliver
-- End the first open wait for this name of each task that is not final; return the tasks.
-- 1 id, 2 tenant, 3 name, 4 codec tag, 5 data
UPDATE event_wait
SET state = 'received', event_id = ?1, codec_tag = ?4, data = ?5
WHERE number IN (
    SELECT min(w.number)
    FROM event_wait AS w
    WHERE w.tenant = ?2
        AND w.name = ?3
        AND w.state = 'open'
        AND NOT EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = w.task_id)
        AND NOT EXISTS (SELECT 1 FROM event_wait AS o WHERE o.task_id = w.task_id AND o.event_id = ?1)
    GROUP BY w.task_id
)
RETURNING task_id

-- name: wake
-- A task keeps the distance of its rank from the moment at which it wakes.
-- 1 ids: carray of 16-byte ids, 2 now
UPDATE waiting
SET rank = ?2 + rank - coalesce(due_at, since_at), due_at = ?2
WHERE task_id IN (SELECT value FROM carray(?1))
    AND state = 'suspended'
    AND (due_at IS NULL OR due_at > ?2)

-- name: ended_waits
-- How many of these waits, for events and for approvals, are over. Their rows stay locked: a send or an answer that comes
-- now waits for the end of the transaction.
-- 1 task id, 2 keys as a JSON array
SELECT
    (
        SELECT count(*)
        FROM event_wait
        WHERE task_id = ?1
            AND key IN (SELECT value FROM json_each(?2))
            AND state <> 'open'
    ) + (
        SELECT count(*)
        FROM approval
        WHERE task_id = ?1
            AND key IN (SELECT value FROM json_each(?2))
            AND state <> 'open'
    )
