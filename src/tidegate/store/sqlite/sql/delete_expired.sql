-- delete_expired: delete expired rows that belong to no task, or to tasks that were never committed.

-- name: stale_batches
-- Uncommitted or refused batches, and committed batches whose tasks were all moved.
-- 1 moment before which they were created
SELECT id
FROM enqueue_batch AS c
WHERE created_at < ?1
    AND (
        committed_at IS NULL
        OR NOT EXISTS (SELECT 1 FROM enqueue_batch_task AS s WHERE s.batch_id = c.id AND s.holder IS NULL)
    )
ORDER BY created_at
LIMIT 100

-- name: expired_keys
-- 1 now, 2 how many at most
DELETE FROM key
WHERE (kind, tenant, name) IN (
    SELECT kind, tenant, name
    FROM key
    WHERE expires_at <= ?1
    LIMIT ?2
)

-- name: has_expired_keys
-- 1 now
SELECT 1
FROM key
WHERE expires_at <= ?1
LIMIT 1

-- name: expired_permits
-- Permits of calls whose process died.
-- 1 now, 2 how many at most
DELETE FROM permit
WHERE id IN (
    SELECT id
    FROM permit
    WHERE expires_at <= ?1
    LIMIT ?2
)

-- name: has_expired_permits
-- 1 now
SELECT 1
FROM permit
WHERE expires_at <= ?1
LIMIT 1

-- name: expired_events
-- 1 now, 2 how many at most
DELETE FROM event
WHERE id IN (
    SELECT id
    FROM event
    WHERE expires_at <= ?1
    LIMIT ?2
)

-- name: has_expired_events
-- 1 now
SELECT 1
FROM event
WHERE expires_at <= ?1
LIMIT 1

-- name: expired_cached
-- 1 now, 2 how many at most
DELETE FROM cached_result
WHERE digest IN (
    SELECT digest
    FROM cached_result
    WHERE kept_until_at <= ?1
    LIMIT ?2
)

-- name: has_expired_cached
-- 1 now
SELECT 1
FROM cached_result
WHERE kept_until_at <= ?1
LIMIT 1

-- name: old_rollups
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM rollup_sum
WHERE (span, minute, queue, function, upstream) IN (
    SELECT span, minute, queue, function, upstream
    FROM rollup_sum
    WHERE span = 1440
        AND minute < ?1
    LIMIT ?2
)

-- name: old_times
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM rollup_time_sum
WHERE (span, minute, queue, function, upstream, kind, bucket) IN (
    SELECT span, minute, queue, function, upstream, kind, bucket
    FROM rollup_time_sum
    WHERE span = 1440
        AND minute < ?1
    LIMIT ?2
)

-- name: old_tenants
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM rollup_tenant
WHERE (minute, tenant) IN (
    SELECT minute, tenant
    FROM rollup_tenant
    WHERE minute < ?1
    LIMIT ?2
)

-- name: has_old_rollups
-- 1 minute before which they were counted
SELECT 1
FROM rollup_sum
WHERE span = 1440
    AND minute < ?1
LIMIT 1

-- name: old_audit
-- 1 moment before which it was recorded, 2 how many at most
DELETE FROM audit
WHERE id IN (
    SELECT id
    FROM audit
    WHERE at < ?1
    ORDER BY at
    LIMIT ?2
)

-- name: has_old_audit
-- 1 moment before which it was recorded
SELECT 1
FROM audit
WHERE at < ?1
LIMIT 1

-- name: old_fired_ticks
-- A tick whose task may not be final is kept.
-- 1 moment before which they fired, 2 how many at most
DELETE FROM tick
WHERE (schedule, at) IN (
    SELECT schedule, at
    FROM tick
    WHERE outcome = 'fired'
        AND decided_at < ?1
        AND open = 0
    LIMIT ?2
)

-- name: has_old_fired_ticks
-- 1 moment before which they fired
SELECT 1
FROM tick
WHERE outcome = 'fired'
    AND decided_at < ?1
    AND open = 0
LIMIT 1

-- name: old_unfired_ticks
-- 1 moment before which they were decided, 2 how many at most
DELETE FROM tick
WHERE (schedule, at) IN (
    SELECT schedule, at
    FROM tick
    WHERE outcome IN ('missed', 'skipped')
        AND decided_at < ?1
    LIMIT ?2
)

-- name: has_old_unfired_ticks
-- 1 moment before which they were decided
SELECT 1
FROM tick
WHERE outcome IN ('missed', 'skipped')
    AND decided_at < ?1
LIMIT 1

-- name: removed_schedules
-- 1 moment before which they were removed, 2 how many at most
DELETE FROM schedule
WHERE name IN (
    SELECT name
    FROM schedule
    WHERE removed_at < ?1
    LIMIT ?2
)

-- name: has_removed_schedules
-- 1 moment before which they were removed
SELECT 1
FROM schedule
WHERE removed_at < ?1
LIMIT 1
