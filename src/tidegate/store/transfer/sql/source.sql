-- source: a SQLite file that tasks are moved from. It is sealed first: from then on no process can claim, enqueue or
-- change anything in it, so that no task can run here and at the target. Nothing in it is deleted.

-- name: sealed
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'moving')

-- name: seal
-- errors.py recognises the message of each trigger.
CREATE TABLE moving (target_id TEXT NOT NULL, location TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE moved (task_id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TRIGGER sealed_task BEFORE INSERT ON task BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_ready BEFORE INSERT ON ready BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_running BEFORE INSERT ON running BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_waiting BEFORE INSERT ON waiting BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_archive BEFORE INSERT ON archive BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_dead BEFORE INSERT ON dead BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_worker BEFORE INSERT ON worker BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_enqueue_batch BEFORE UPDATE ON enqueue_batch BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER reranked_ready BEFORE UPDATE ON ready BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER reranked_waiting BEFORE UPDATE ON waiting BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_step BEFORE UPDATE ON step BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_event BEFORE INSERT ON event BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_schedule BEFORE UPDATE ON schedule BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;
CREATE TRIGGER sealed_new_schedule BEFORE INSERT ON schedule BEGIN
    SELECT RAISE(ABORT, 'tidegate: moved to ' || (SELECT location FROM moving));
END;

-- name: unseal
DROP TABLE moving;
DROP TABLE moved;
DROP TRIGGER sealed_task;
DROP TRIGGER sealed_ready;
DROP TRIGGER sealed_running;
DROP TRIGGER sealed_waiting;
DROP TRIGGER sealed_archive;
DROP TRIGGER sealed_dead;
DROP TRIGGER sealed_worker;
DROP TRIGGER sealed_enqueue_batch;
DROP TRIGGER reranked_ready;
DROP TRIGGER reranked_waiting;
DROP TRIGGER IF EXISTS sealed_step;
DROP TRIGGER IF EXISTS sealed_event;
DROP TRIGGER IF EXISTS sealed_schedule;
DROP TRIGGER IF EXISTS sealed_new_schedule;

-- name: note_seal
-- 1 identity of the target, 2 its location as text, 3 now
INSERT INTO moving (target_id, location, at)
VALUES (?, ?, ?)

-- name: destination
SELECT target_id, location
FROM moving

-- name: live_workers
-- 1 now
SELECT name, host, pid
FROM worker
WHERE retired_at IS NULL
    AND expires_at > ?1
ORDER BY name, id

-- name: running
SELECT count(*)
FROM running

-- name: enqueue_batch_task
SELECT count(*)
FROM enqueue_batch_task AS s
JOIN enqueue_batch AS c ON c.id = s.batch_id
WHERE c.committed_at IS NOT NULL
    AND s.holder IS NULL

-- name: states
-- 1 whether to include finished tasks for which no task waits
SELECT 'ready', count(*)
FROM ready
UNION ALL
SELECT state, count(*)
FROM waiting
GROUP BY state
UNION ALL
SELECT 'dead', count(*)
FROM dead
UNION ALL
SELECT state, count(*)
FROM archive
WHERE ?1
    OR task_id IN (SELECT child_id FROM task_wait)
GROUP BY state

-- name: next
-- The tasks that are not recorded as being at the target, by id.
-- 1 the id after which to continue, 2 whether to include finished tasks for which no task waits, 3 how many at most
SELECT p.task_id
FROM (
    SELECT task_id FROM ready
    UNION ALL
    SELECT task_id FROM waiting
    UNION ALL
    SELECT task_id FROM dead
    UNION ALL
    SELECT task_id FROM archive WHERE ?2 OR task_id IN (SELECT child_id FROM task_wait)
) AS p
WHERE p.task_id > ?1
    AND NOT EXISTS (SELECT 1 FROM moved AS m WHERE m.task_id = p.task_id)
ORDER BY p.task_id
LIMIT ?3

-- name: any
-- Tasks in any state, by id, to check whether the target has one of them.
-- 1 the id after which to continue, 2 how many at most
SELECT id
FROM task
WHERE id > ?1
ORDER BY id
LIMIT ?2

-- name: note_moved
-- 1 task id
INSERT OR IGNORE INTO moved (task_id)
VALUES (?)

-- name: count_moved
SELECT count(*)
FROM moved

-- name: task
-- The rows of tasks are copied by the names of their columns, so these statements take every column there is. A new
-- column travels without a change here. If the target does not have it, the transfer fails.
-- 1 ids: carray of 16-byte ids
SELECT *
FROM task
WHERE id IN (SELECT value FROM carray(?1))

-- name: payload
-- 1 ids
SELECT *
FROM payload
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: ready
-- 1 ids
SELECT *
FROM ready
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: waiting
-- 1 ids
SELECT *
FROM waiting
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: archive
-- 1 ids
SELECT *
FROM archive
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: result
-- 1 ids
SELECT *
FROM result
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: dead
-- 1 ids
SELECT *
FROM dead
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: attempt
-- 1 ids
SELECT *
FROM attempt
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: action
-- 1 ids
SELECT *
FROM action
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: progress
-- 1 ids
SELECT *
FROM progress
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: usage
-- 1 ids
SELECT *
FROM usage
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: stream
-- 1 ids
SELECT *
FROM stream
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: chunk
-- 1 ids
SELECT *
FROM chunk
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: step
-- In order, and without their numbers: the target gives its own, which rise.
-- 1 ids
SELECT
    task_id, key, name, state, run, attempt, on_doubt, arguments, tries, begun_at, ended_at, codec, data, upstream,
    cause, request_id, doubted, cached_from, input_tokens, output_tokens
FROM step
WHERE task_id IN (SELECT value FROM carray(?1))
ORDER BY number

-- name: task_after
-- Without the parents that succeeded: they may not be moved. Maintenance admits a task that waits for none.
-- 1 ids
SELECT e.task_id, e.parent_id, e.on_failure
FROM task_after AS e
WHERE e.task_id IN (SELECT value FROM carray(?1))
    AND NOT EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = e.parent_id AND a.state = 'succeeded')

-- name: doubt
-- As `step`, without the ids.
-- 1 ids
SELECT
    task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at, resolved_at,
    resolved_by, note, input_tokens, output_tokens
FROM doubt
WHERE task_id IN (SELECT value FROM carray(?1))
ORDER BY id

-- name: event_wait
-- As `step`, without the numbers.
-- 1 ids
SELECT task_id, key, tenant, name, state, since_at, deadline_at, event_id, codec_tag, data
FROM event_wait
WHERE task_id IN (SELECT value FROM carray(?1))
ORDER BY number

-- name: task_wait
SELECT task_id, child_id
FROM task_wait

-- name: approval
-- As `step`, without the numbers.
-- 1 ids
SELECT
    task_id, key, state, question, recipient, codec_tag, data, run, asks, asked_at, deadline_at, answered_at, answered_by,
    comment, answer_tag, answer
FROM approval
WHERE task_id IN (SELECT value FROM carray(?1))
ORDER BY number

-- name: cache_wait
-- 1 ids
SELECT *
FROM cache_wait
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: provider_job
-- As `step`, without the numbers.
-- 1 ids
SELECT
    task_id, key, name, provider, state, generation, job_id, run, polls, failed_polls, begun_at, submitted_at, polled_at,
    next_poll_at, done, total, note, error, can_cancel, cancel_requested_at, ended_at, codec, data
FROM provider_job
WHERE task_id IN (SELECT value FROM carray(?1))
ORDER BY number

-- name: provider_job_item
-- 1 ids
SELECT *
FROM provider_job_item
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: key
-- The names that these tasks hold.
-- 1 ids
SELECT k.kind, k.tenant, k.name, k.task_id, k.fingerprint, k.expires_at
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
CROSS JOIN (SELECT 'key' AS kind UNION ALL SELECT 'unique') AS held
CROSS JOIN key AS k
    ON k.kind = held.kind
    AND k.tenant = t.tenant
    AND k.name = CASE held.kind WHEN 'key' THEN t.idempotency_key ELSE t.unique_name END
WHERE k.task_id = t.id

-- name: finished_keys
-- Unexpired idempotency keys of tasks that are finished or deleted.
-- 1 and 2 the tenant and name after which to continue, 3 now, 4 how many at most
SELECT k.kind, k.tenant, k.name, k.task_id, k.fingerprint, k.expires_at
FROM key AS k
WHERE k.kind = 'key'
    AND (k.tenant, k.name) > (?1, ?2)
    AND k.expires_at > ?3
    AND NOT EXISTS (SELECT 1 FROM ready AS r WHERE r.task_id = k.task_id)
    AND NOT EXISTS (SELECT 1 FROM waiting AS w WHERE w.task_id = k.task_id)
    AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = k.task_id)
ORDER BY k.tenant, k.name
LIMIT ?4

-- name: map
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM map

-- name: map_deleted
-- 1 whether finished tasks are moved too
SELECT map_id, state, sum(items) AS items
FROM (
    SELECT map_id, state, items
    FROM map_deleted
    UNION ALL
    SELECT t.map_id, a.state, count(*)
    FROM task AS t
    JOIN archive AS a ON a.task_id = t.id
    WHERE t.map_id IS NOT NULL
        AND NOT ?1
        AND t.id NOT IN (SELECT child_id FROM task_wait)
    GROUP BY t.map_id, a.state
)
GROUP BY map_id, state

-- name: gate
SELECT kind, name, limits, state, buckets, changed_at
FROM gate

-- name: pause
SELECT kind, name, paused_at, paused_by, why
FROM pause

-- name: control
-- Reloads are not moved: the workers of the target start with their current code.
SELECT kind, name, value, version, changed_at, changed_by, why
FROM control
WHERE kind <> 'reload'

-- name: manifest
SELECT app, body, saved_at
FROM manifest

-- name: token
SELECT id, digest, name, role, tenant, created_at, expires_at, revoked_at
FROM token

-- name: schedule
SELECT name, application, rule, task, next_at, revision, changed_at, paused_at, removed_at
FROM schedule

-- name: schedule_set
SELECT application, fingerprint, generation, declared_at
FROM schedule_set

-- name: alert_mute
SELECT rule, subject, until_at, muted_at, muted_by, why
FROM alert_mute

-- name: event
SELECT id, tenant, name, codec_tag, data, at, expires_at
FROM event

-- name: cached_result
SELECT
    digest, tenant, is_shared, version, leader_id, leader_run, leader_key, elected_id, elected_at, task_id, codec_tag, data,
    made_at, expires_at, kept_until_at
FROM cached_result
WHERE made_at IS NOT NULL

-- name: tick
-- Ticks that did not fire, and those whose tasks may not be final.
SELECT schedule, at, until_at, ticks, outcome, reason, decided_at, task_id, open
FROM tick
WHERE outcome <> 'fired'
    OR open = 1

-- name: failure_group
SELECT fingerprint, error_class, shape, frame
FROM failure_group

-- name: failure_mark
SELECT fingerprint, kind, marked_at, marked_by, note, until_at
FROM failure_mark

-- name: operation_task
-- 1 operation and 2 task id after which to continue, 3 how many at most
SELECT
    operation_id, task_id, state, queue, upstream, function, tenant, run, lot, in_canary, sent_at, first_try, first_at,
    why, was, args, codec_tag
FROM operation_task
WHERE (operation_id, task_id) > (?1, ?2)
ORDER BY operation_id, task_id
LIMIT ?3

-- name: operation
-- One that chooses or purges letters by its filter is stopped: the target may have letters of its own that match.
-- 1 now
SELECT
    id, kind, CASE WHEN state IN ('choosing', 'purging') THEN 'stopped' ELSE state END AS state, started_by, tenant,
    filter, settings, preview, chosen, sent, succeeded, died, cancelled, skipped, undone, cursor, canary, canary_at,
    CASE WHEN state IN ('choosing', 'purging') THEN 'moved to another database before it had seen all letters' ELSE note
    END AS note,
    started_at, changed_at,
    CASE WHEN state IN ('choosing', 'purging') THEN ?1 ELSE ended_at END AS ended_at,
    revision
FROM operation
