-- compact_history: fold the rows that enqueue and finish appended to `tally` into the roll-up: by minute, hour and day.
-- Rows of minutes and hours are deleted when they are old. Tenants are counted by the hour. Old hours are summed by the
-- day, in the row of its first hour. Two processes take different rows at the same time.

-- name: fold
-- 1 how many rows at most
WITH few AS MATERIALIZED (
    SELECT ctid AS row_location
    FROM /*schema*/tally
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM /*schema*/tally
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM few))
    RETURNING
        minute, queue, function, upstream, tenant, enqueued, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, first_final_at, coalesce(calls, 0) AS calls,
        coalesce(input_tokens, 0) AS input_tokens, coalesce(output_tokens, 0) AS output_tokens, started_minute,
        run_bucket, wait_bucket, succeeded + dead + cancelled + retried + released AS runs, total_seconds, total_bucket,
        reason, ended_calls, cached
),
counts AS (
    SELECT
        minute, queue, function, upstream, tenant, enqueued, 0 AS started, succeeded, dead, cancelled, retried,
        released, run_seconds, wait_seconds, first_final_at, calls, input_tokens, output_tokens
    FROM gone
    UNION ALL
    SELECT started_minute, queue, function, upstream, tenant, 0, runs, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0
    FROM gone
    WHERE started_minute IS NOT NULL
),
folded AS (
    INSERT INTO /*schema*/rollup AS r (
        minute, queue, function, upstream, tenant, enqueued, started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, first_final_at, calls, input_tokens, output_tokens
    )
    SELECT
        minute, queue, function, upstream, '', sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled),
        sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), min(first_final_at), sum(calls),
        sum(input_tokens), sum(output_tokens)
    FROM counts
    GROUP BY minute, queue, function, upstream
    ORDER BY minute, queue, function, upstream
    ON CONFLICT (minute, queue, function, upstream, tenant) DO UPDATE
    SET
        enqueued = r.enqueued + excluded.enqueued,
        started = r.started + excluded.started,
        succeeded = r.succeeded + excluded.succeeded,
        dead = r.dead + excluded.dead,
        cancelled = r.cancelled + excluded.cancelled,
        retried = r.retried + excluded.retried,
        released = r.released + excluded.released,
        run_seconds = r.run_seconds + excluded.run_seconds,
        wait_seconds = r.wait_seconds + excluded.wait_seconds,
        first_final_at = least(r.first_final_at, excluded.first_final_at),
        calls = r.calls + excluded.calls,
        input_tokens = r.input_tokens + excluded.input_tokens,
        output_tokens = r.output_tokens + excluded.output_tokens
),
sums AS (
    INSERT INTO /*schema*/rollup_sum AS r (
        span, minute, queue, function, upstream, enqueued, started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, calls, input_tokens, output_tokens
    )
    SELECT
        s.span, c.minute - c.minute % s.span AS period, c.queue, c.function, c.upstream, sum(c.enqueued), sum(c.started),
        sum(c.succeeded), sum(c.dead), sum(c.cancelled), sum(c.retried), sum(c.released), sum(c.run_seconds),
        sum(c.wait_seconds), sum(c.calls), sum(c.input_tokens), sum(c.output_tokens)
    FROM counts AS c
    CROSS JOIN (VALUES (60), (1440)) AS s (span)
    GROUP BY s.span, period, c.queue, c.function, c.upstream
    ORDER BY s.span, period, c.queue, c.function, c.upstream
    ON CONFLICT (span, minute, queue, function, upstream) DO UPDATE
    SET
        enqueued = r.enqueued + excluded.enqueued,
        started = r.started + excluded.started,
        succeeded = r.succeeded + excluded.succeeded,
        dead = r.dead + excluded.dead,
        cancelled = r.cancelled + excluded.cancelled,
        retried = r.retried + excluded.retried,
        released = r.released + excluded.released,
        run_seconds = r.run_seconds + excluded.run_seconds,
        wait_seconds = r.wait_seconds + excluded.wait_seconds,
        calls = r.calls + excluded.calls,
        input_tokens = r.input_tokens + excluded.input_tokens,
        output_tokens = r.output_tokens + excluded.output_tokens
),
measured AS (
    SELECT minute, queue, function, upstream, 'run' AS kind, run_bucket AS bucket, runs
    FROM gone
    WHERE run_bucket IS NOT NULL
    UNION ALL
    SELECT minute, queue, function, upstream, 'wait', wait_bucket, runs
    FROM gone
    WHERE wait_bucket IS NOT NULL
),
times AS (
    INSERT INTO /*schema*/rollup_time AS r (minute, queue, function, upstream, kind, bucket, runs)
    SELECT minute, queue, function, upstream, kind, bucket, sum(runs)
    FROM measured
    GROUP BY minute, queue, function, upstream, kind, bucket
    ORDER BY minute, queue, function, upstream, kind, bucket
    ON CONFLICT (minute, queue, function, upstream, kind, bucket) DO UPDATE
    SET runs = r.runs + excluded.runs
),
time_sums AS (
    INSERT INTO /*schema*/rollup_time_sum AS r (span, minute, queue, function, upstream, kind, bucket, runs)
    SELECT
        s.span, m.minute - m.minute % s.span AS period, m.queue, m.function, m.upstream, m.kind, m.bucket, sum(m.runs)
    FROM measured AS m
    CROSS JOIN (VALUES (60), (1440)) AS s (span)
    GROUP BY s.span, period, m.queue, m.function, m.upstream, m.kind, m.bucket
    ORDER BY s.span, period, m.queue, m.function, m.upstream, m.kind, m.bucket
    ON CONFLICT (span, minute, queue, function, upstream, kind, bucket) DO UPDATE
    SET runs = r.runs + excluded.runs
),
tenants AS (
    INSERT INTO /*schema*/rollup_tenant AS r (
        minute, tenant, enqueued, started, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        calls, input_tokens, output_tokens
    )
    SELECT
        minute - minute % 60 AS hour, tenant, sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled),
        sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens),
        sum(output_tokens)
    FROM counts
    WHERE tenant <> ''
    GROUP BY hour, tenant
    ORDER BY hour, tenant
    ON CONFLICT (minute, tenant) DO UPDATE
    SET
        enqueued = r.enqueued + excluded.enqueued,
        started = r.started + excluded.started,
        succeeded = r.succeeded + excluded.succeeded,
        dead = r.dead + excluded.dead,
        cancelled = r.cancelled + excluded.cancelled,
        retried = r.retried + excluded.retried,
        released = r.released + excluded.released,
        run_seconds = r.run_seconds + excluded.run_seconds,
        wait_seconds = r.wait_seconds + excluded.wait_seconds,
        calls = r.calls + excluded.calls,
        input_tokens = r.input_tokens + excluded.input_tokens,
        output_tokens = r.output_tokens + excluded.output_tokens
),
totals AS (
    INSERT INTO /*schema*/total AS t (
        queue, function, upstream, enqueued, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        calls, input_tokens, output_tokens, total_seconds
    )
    SELECT
        queue, function, upstream, sum(enqueued), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
        sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens),
        coalesce(sum(total_seconds), 0)
    FROM gone
    GROUP BY queue, function, upstream
    ORDER BY queue, function, upstream
    ON CONFLICT (queue, function, upstream) DO UPDATE
    SET
        enqueued = t.enqueued + excluded.enqueued,
        succeeded = t.succeeded + excluded.succeeded,
        dead = t.dead + excluded.dead,
        cancelled = t.cancelled + excluded.cancelled,
        retried = t.retried + excluded.retried,
        released = t.released + excluded.released,
        run_seconds = t.run_seconds + excluded.run_seconds,
        wait_seconds = t.wait_seconds + excluded.wait_seconds,
        calls = t.calls + excluded.calls,
        input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens,
        total_seconds = t.total_seconds + excluded.total_seconds
),
events AS (
    INSERT INTO /*schema*/total_event AS t (kind, name, function, reason, events)
    SELECT kind, name, function, reason, sum(events)
    FROM (
        SELECT 'retried' AS kind, queue AS name, function, coalesce(reason, '') AS reason, retried AS events
        FROM gone
        WHERE retried > 0
        UNION ALL
        SELECT 'dead', queue, function, coalesce(reason, ''), dead
        FROM gone
        WHERE dead > 0
        UNION ALL
        SELECT 'call', upstream, '', reason, ended_calls
        FROM gone
        WHERE ended_calls IS NOT NULL
        UNION ALL
        SELECT 'cache', queue, function, reason, cached
        FROM gone
        WHERE cached IS NOT NULL
    ) AS counted
    GROUP BY kind, name, function, reason
    ORDER BY kind, name, function, reason
    ON CONFLICT (kind, name, function, reason) DO UPDATE
    SET events = t.events + excluded.events
),
total_times AS (
    INSERT INTO /*schema*/total_time AS t (queue, function, kind, bucket, runs)
    SELECT queue, function, kind, bucket, sum(runs)
    FROM (
        SELECT queue, function, kind, bucket, runs
        FROM measured
        UNION ALL
        SELECT queue, function, 'total', total_bucket, succeeded + dead + cancelled
        FROM gone
        WHERE total_bucket IS NOT NULL
    ) AS counted
    GROUP BY queue, function, kind, bucket
    ORDER BY queue, function, kind, bucket
    ON CONFLICT (queue, function, kind, bucket) DO UPDATE
    SET runs = t.runs + excluded.runs
)
SELECT count(*)
FROM gone

-- name: old_minutes
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM /*schema*/rollup
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup
    WHERE minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: old_time_minutes
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM /*schema*/rollup_time
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup_time
    WHERE minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: old_hours
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM /*schema*/rollup_sum
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup_sum
    WHERE span = 60
        AND minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: old_time_hours
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM /*schema*/rollup_time_sum
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/rollup_time_sum
    WHERE span = 60
        AND minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: tenant_hours
-- 1 minute before which they may be summed, 2 how many rows at most
WITH few AS MATERIALIZED (
    SELECT ctid AS row_location
    FROM /*schema*/rollup_tenant
    WHERE minute % 1440 <> 0
        AND minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM /*schema*/rollup_tenant
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM few))
    RETURNING
        minute - minute % 1440 AS period, tenant, enqueued, started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, calls, input_tokens, output_tokens
),
summed AS (
    INSERT INTO /*schema*/rollup_tenant AS r (
        minute, tenant, enqueued, started, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        calls, input_tokens, output_tokens
    )
    SELECT
        period, tenant, sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled), sum(retried),
        sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens)
    FROM gone
    GROUP BY period, tenant
    ORDER BY period, tenant
    ON CONFLICT (minute, tenant) DO UPDATE
    SET
        enqueued = r.enqueued + excluded.enqueued,
        started = r.started + excluded.started,
        succeeded = r.succeeded + excluded.succeeded,
        dead = r.dead + excluded.dead,
        cancelled = r.cancelled + excluded.cancelled,
        retried = r.retried + excluded.retried,
        released = r.released + excluded.released,
        run_seconds = r.run_seconds + excluded.run_seconds,
        wait_seconds = r.wait_seconds + excluded.wait_seconds,
        calls = r.calls + excluded.calls,
        input_tokens = r.input_tokens + excluded.input_tokens,
        output_tokens = r.output_tokens + excluded.output_tokens
)
SELECT count(*)
FROM gone
