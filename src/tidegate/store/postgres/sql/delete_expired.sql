-- delete_expired: delete expired rows that belong to no task, or to tasks that were never committed. Two processes
-- delete different rows at the same time.

-- name: stale_batches
-- Uncommitted or refused batches, and committed batches whose tasks were all moved.
-- 1 at, 2 seconds since they were created
SELECT c.id
FROM /*schema*/enqueue_batch AS c
WHERE c.created_at < (SELECT /*schema*/moment($1) - $2::float8)
    AND (
        c.committed_at IS NULL
        OR NOT EXISTS (SELECT 1 FROM /*schema*/enqueue_batch_task AS s WHERE s.batch_id = c.id AND s.holder IS NULL)
    )
ORDER BY c.created_at
LIMIT 100
FOR UPDATE SKIP LOCKED

-- name: expired_keys
-- 1 at, 2 how many at most
DELETE FROM /*schema*/key
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/key
    WHERE expires_at <= (SELECT /*schema*/moment($1))
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: expired_permits
-- Permits of calls whose process died.
-- 1 at, 2 how many at most
DELETE FROM /*schema*/permit
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/permit
    WHERE expires_at <= (SELECT /*schema*/moment($1))
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: expired_events
-- 1 at, 2 how many at most
DELETE FROM /*schema*/event
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/event
    WHERE expires_at <= (SELECT /*schema*/moment($1))
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: expired_cached
-- 1 at, 2 how many at most
DELETE FROM /*schema*/cached_result
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/cached_result
    WHERE kept_until_at <= (SELECT /*schema*/moment($1))
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: old_rollups
-- 1 at, 2 seconds since they counted, 3 how many at most
DELETE FROM /*schema*/rollup_sum
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup_sum
    WHERE span = 1440
        AND minute < (SELECT floor((/*schema*/moment($1) - $2::float8) / 60))
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))

-- name: old_times
-- 1 at, 2 seconds since they counted, 3 how many at most
DELETE FROM /*schema*/rollup_time_sum
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup_time_sum
    WHERE span = 1440
        AND minute < (SELECT floor((/*schema*/moment($1) - $2::float8) / 60))
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))

-- name: old_tenants
-- 1 at, 2 seconds since they counted, 3 how many at most
DELETE FROM /*schema*/rollup_tenant
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup_tenant
    WHERE minute < (SELECT floor((/*schema*/moment($1) - $2::float8) / 60))
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))

-- name: old_audit
-- 1 at, 2 seconds since it was recorded, 3 how many at most
DELETE FROM /*schema*/audit
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/audit
    WHERE at < (SELECT /*schema*/moment($1) - $2::float8)
    ORDER BY at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))

-- name: old_fired_ticks
-- A tick whose task may not be final is kept.
-- 1 at, 2 seconds since they fired, 3 how many at most
DELETE FROM /*schema*/tick
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/tick
    WHERE outcome = 'fired'
        AND decided_at < (SELECT /*schema*/moment($1) - $2::float8)
        AND open = 0
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))

-- name: old_unfired_ticks
-- 1 at, 2 seconds since they were decided, 3 how many at most
DELETE FROM /*schema*/tick
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/tick
    WHERE outcome IN ('missed', 'skipped')
        AND decided_at < (SELECT /*schema*/moment($1) - $2::float8)
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))

-- name: removed_schedules
-- 1 at, 2 seconds since they were removed, 3 how many at most
DELETE FROM /*schema*/schedule
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/schedule
    WHERE removed_at < (SELECT /*schema*/moment($1) - $2::float8)
    LIMIT $3
    FOR UPDATE SKIP LOCKED
))
