-- target: the PostgreSQL database that tasks are moved to. Rows that exist already are not changed.

-- name: identity
SELECT /*schema*/identity()::text

-- name: there
-- 1 ids
SELECT id
FROM /*schema*/task
WHERE id = ANY ($1::uuid[])

-- name: take_names
-- Take the names among these that are free: missing or expired.
-- 1 kinds, 2 tenants, 3 names, 4 task ids, 5 fingerprints, 6 moments they expire, 7 at: see moment
INSERT INTO /*schema*/key AS k (kind, tenant, name, task_id, fingerprint, expires_at)
SELECT n.kind, n.tenant, n.name, n.task_id, n.fingerprint, n.expires_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::bytea[], $6::double precision[])
    AS n (kind, tenant, name, task_id, fingerprint, expires_at)
ORDER BY n.kind, n.tenant, n.name
ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE
SET
    task_id = excluded.task_id,
    fingerprint = excluded.fingerprint,
    expires_at = excluded.expires_at
WHERE k.task_id = excluded.task_id
    OR k.expires_at <= /*schema*/moment($7)

-- name: lost_names
-- The tasks that lost a name to another task.
-- 1 kinds, 2 tenants, 3 names, 4 task ids
SELECT DISTINCT n.task_id
FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) AS n (kind, tenant, name, task_id)
JOIN /*schema*/key AS k ON k.kind = n.kind AND k.tenant = n.tenant AND k.name = n.name
WHERE k.task_id <> n.task_id

-- name: give_names_back
-- 1 kinds, 2 tenants, 3 names, 4 ids
DELETE FROM /*schema*/key AS k
USING unnest($1::text[], $2::text[], $3::text[]) AS n (kind, tenant, name)
WHERE k.kind = n.kind
    AND k.tenant = n.tenant
    AND k.name = n.name
    AND k.task_id = ANY ($4::uuid[])

-- name: task_wait
-- 1 task id, 2 the task that it waits for
INSERT INTO /*schema*/task_wait (task_id, child_id)
VALUES ($1, $2)
ON CONFLICT DO NOTHING

-- name: map
-- 1 to 18: the columns
INSERT INTO /*schema*/map (
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
ON CONFLICT DO NOTHING

-- name: map_deleted
-- 1 map, 2 state, 3 how many items
INSERT INTO /*schema*/map_deleted (map_id, state, items)
VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING

-- name: gate
-- 1 kind, 2 name, 3 limits, 4 state, 5 buckets, 6 moment of the last change
INSERT INTO /*schema*/gate (kind, name, limits, state, buckets, changed_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING

-- name: pause
-- 1 kind, 2 name, 3 moment, 4 who, 5 why
INSERT INTO /*schema*/pause (kind, name, paused_at, paused_by, why)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING

-- name: control
-- 1 kind, 2 name, 3 value, 4 version, 5 moment of the change, 6 who, 7 why
INSERT INTO /*schema*/control (kind, name, value, version, changed_at, changed_by, why)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING

-- name: manifest
-- 1 application, 2 what it declares, 3 moment it was saved
INSERT INTO /*schema*/manifest (app, body, saved_at)
VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING

-- name: token
-- 1 id, 2 digest, 3 name, 4 role, 5 tenant, 6 moment it was created, 7 expires, 8 was revoked
INSERT INTO /*schema*/token (id, digest, name, role, tenant, created_at, expires_at, revoked_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING

-- name: schedule
-- 1 name, 2 application, 3 rule, 4 task, 5 its next tick, 6 revision, 7 moment of the last change, 8 was paused,
-- 9 was removed
INSERT INTO /*schema*/schedule (
    name, application, rule, task, next_at, revision, changed_at, paused_at, removed_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING

-- name: schedule_set
-- 1 application, 2 fingerprint, 3 generation, 4 moment it was declared
INSERT INTO /*schema*/schedule_set (application, fingerprint, generation, declared_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

-- name: alert_mute
-- 1 rule, 2 subject, 3 until when, 4 since when, 5 who, 6 why
INSERT INTO /*schema*/alert_mute (rule, subject, until_at, muted_at, muted_by, why)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING

-- name: event
-- 1 id, 2 tenant, 3 name, 4 codec tag, 5 data, 6 moment it was sent, 7 when it expires
INSERT INTO /*schema*/event (id, tenant, name, codec_tag, data, at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO NOTHING

-- name: cached_result
-- 1 digest, 2 tenant, 3 whether it is shared, 4 version, 5 to 7 the task, run and step that do the work, 8 the task that was
-- woken to do it, 9 when, 10 task id, 11 codec, 12 result or NULL, 13 when it was made, 14 when it expires, 15 when the row
-- may be deleted
INSERT INTO /*schema*/cached_result (
    digest, tenant, is_shared, version, leader_id, leader_run, leader_key, elected_id, elected_at, task_id, codec_tag, data,
    made_at, expires_at, kept_until_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (digest) DO NOTHING

-- name: tick
-- 1 schedule, 2 planned moment, 3 the last of several ticks, 4 how many, 5 outcome, 6 reason, 7 moment it was decided,
-- 8 task id, 9 whether its task counts as unfinished
INSERT INTO /*schema*/tick (schedule, at, until_at, ticks, outcome, reason, decided_at, task_id, open)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING

-- name: failure_group
-- 1 fingerprint, 2 error class, 3 shape of the message, 4 frame
INSERT INTO /*schema*/failure_group (fingerprint, error_class, shape, frame)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

-- name: failure_mark
-- 1 fingerprint, 2 kind, 3 since when, 4 who, 5 note, 6 until when
INSERT INTO /*schema*/failure_mark (fingerprint, kind, marked_at, marked_by, note, until_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING

-- name: operation_task
-- 1 operation, 2 task id, 3 state, 4 queue, 5 upstream, 6 function, 7 tenant, 8 run, 9 lot, 10 whether in the canary,
-- 11 when sent, 12 first attempt, 13 when it ended, 14 why, 15 before, 16 arguments before, 17 their codec
INSERT INTO /*schema*/operation_task (
    operation_id, task_id, state, queue, upstream, function, tenant, run, lot, in_canary, sent_at, first_try, first_at,
    why, was, args, codec_tag
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
ON CONFLICT DO NOTHING

-- name: operation
-- 1 id, 2 kind, 3 state, 4 who, 5 tenant, 6 filter, 7 settings, 8 preview, 9 chosen, 10 sent, 11 succeeded, 12 died,
-- 13 cancelled, 14 skipped, 15 undone, 16 cursor, 17 size of the canary, 18 when it was sent, 19 note, 20 to 22 moments
-- of start, change and end, 23 revision
INSERT INTO /*schema*/operation (
    id, kind, state, started_by, tenant, filter, settings, preview, chosen, sent, succeeded, died, cancelled, skipped,
    undone, cursor, canary, canary_at, note, started_at, changed_at, ended_at, revision
)
VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23
)
ON CONFLICT DO NOTHING
