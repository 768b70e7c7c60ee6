-- compact_history: fold the rows that enqueue and finish appended to `tally` into the roll-up: by minute, hour and day.
-- Rows of minutes and hours are deleted when they are old. Tenants are counted by the hour. Old hours are summed by the
-- day, in the row of its first hour.

-- name: last_folded
-- The last row to fold now; NULL if there is none.
-- 1 how many rows at most
SELECT max(rowid)
FROM (SELECT rowid FROM tally ORDER BY rowid LIMIT ?1)

-- name: fold
-- 1 last row
INSERT INTO rollup (
    minute, queue, function, upstream, tenant, enqueued, started, succeeded, dead, cancelled, retried, released,
    run_seconds, wait_seconds, first_final_at, calls, input_tokens, output_tokens
)
SELECT
    minute, queue, function, upstream, '', sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled),
    sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), min(first_final_at), sum(calls),
    sum(input_tokens), sum(output_tokens)
FROM (
    SELECT
        minute, queue, function, upstream, enqueued, 0 AS started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, first_final_at, coalesce(calls, 0) AS calls,
        coalesce(input_tokens, 0) AS input_tokens, coalesce(output_tokens, 0) AS output_tokens
    FROM tally
    WHERE rowid <= ?1
    UNION ALL
    SELECT
        started_minute, queue, function, upstream, 0, succeeded + dead + cancelled + retried + released, 0, 0, 0, 0, 0,
        0.0, 0.0, NULL, 0, 0, 0
    FROM tally
    WHERE rowid <= ?1
        AND started_minute IS NOT NULL
)
WHERE true
GROUP BY minute, queue, function, upstream
ON CONFLICT (minute, queue, function, upstream, tenant) DO UPDATE
SET
    enqueued = enqueued + excluded.enqueued,
    started = started + excluded.started,
    succeeded = succeeded + excluded.succeeded,
    dead = dead + excluded.dead,
    cancelled = cancelled + excluded.cancelled,
    retried = retried + excluded.retried,
    released = released + excluded.released,
    run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds,
    first_final_at = coalesce(min(first_final_at, excluded.first_final_at), first_final_at, excluded.first_final_at),
    calls = calls + excluded.calls,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens

-- name: fold_times
-- 1 last row
INSERT INTO rollup_time (minute, queue, function, upstream, kind, bucket, runs)
SELECT minute, queue, function, upstream, kind, bucket, sum(runs)
FROM (
    SELECT
        minute, queue, function, upstream, 'run' AS kind, run_bucket AS bucket,
        succeeded + dead + cancelled + retried + released AS runs
    FROM tally
    WHERE rowid <= ?1
        AND run_bucket IS NOT NULL
    UNION ALL
    SELECT minute, queue, function, upstream, 'wait', wait_bucket, succeeded + dead + cancelled + retried + released
    FROM tally
    WHERE rowid <= ?1
        AND wait_bucket IS NOT NULL
)
WHERE true
GROUP BY minute, queue, function, upstream, kind, bucket
ON CONFLICT (minute, queue, function, upstream, kind, bucket) DO UPDATE
SET runs = runs + excluded.runs

-- name: fold_sums
-- 1 last row
INSERT INTO rollup_sum (
    span, minute, queue, function, upstream, enqueued, started, succeeded, dead, cancelled, retried, released,
    run_seconds, wait_seconds, calls, input_tokens, output_tokens
)
SELECT
    s.span, c.minute - c.minute % s.span AS period, queue, function, upstream, sum(enqueued), sum(started), sum(succeeded),
    sum(dead), sum(cancelled), sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls),
    sum(input_tokens), sum(output_tokens)
FROM (
    SELECT
        minute, queue, function, upstream, enqueued, 0 AS started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, coalesce(calls, 0) AS calls, coalesce(input_tokens, 0) AS input_tokens,
        coalesce(output_tokens, 0) AS output_tokens
    FROM tally
    WHERE rowid <= ?1
    UNION ALL
    SELECT
        started_minute, queue, function, upstream, 0, succeeded + dead + cancelled + retried + released, 0, 0, 0, 0, 0,
        0.0, 0.0, 0, 0, 0
    FROM tally
    WHERE rowid <= ?1
        AND started_minute IS NOT NULL
) AS c
CROSS JOIN (SELECT 60 AS span UNION ALL SELECT 1440) AS s
WHERE true
GROUP BY s.span, period, queue, function, upstream
ON CONFLICT (span, minute, queue, function, upstream) DO UPDATE
SET
    enqueued = enqueued + excluded.enqueued,
    started = started + excluded.started,
    succeeded = succeeded + excluded.succeeded,
    dead = dead + excluded.dead,
    cancelled = cancelled + excluded.cancelled,
    retried = retried + excluded.retried,
    released = released + excluded.released,
    run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds,
    calls = calls + excluded.calls,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens

-- name: fold_time_sums
-- 1 last row
INSERT INTO rollup_time_sum (span, minute, queue, function, upstream, kind, bucket, runs)
SELECT s.span, m.minute - m.minute % s.span AS period, queue, function, upstream, kind, bucket, sum(runs)
FROM (
    SELECT
        minute, queue, function, upstream, 'run' AS kind, run_bucket AS bucket,
        succeeded + dead + cancelled + retried + released AS runs
    FROM tally
    WHERE rowid <= ?1
        AND run_bucket IS NOT NULL
    UNION ALL
    SELECT minute, queue, function, upstream, 'wait', wait_bucket, succeeded + dead + cancelled + retried + released
    FROM tally
    WHERE rowid <= ?1
        AND wait_bucket IS NOT NULL
) AS m
CROSS JOIN (SELECT 60 AS span UNION ALL SELECT 1440) AS s
WHERE true
GROUP BY s.span, period, queue, function, upstream, kind, bucket
ON CONFLICT (span, minute, queue, function, upstream, kind, bucket) DO UPDATE
SET runs = runs + excluded.runs

-- name: fold_tenants
-- 1 last row
INSERT INTO rollup_tenant (
    minute, tenant, enqueued, started, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds, calls,
    input_tokens, output_tokens
)
SELECT
    minute - minute % 60 AS hour, tenant, sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled),
    sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens)
FROM (
    SELECT
        minute, tenant, enqueued, 0 AS started, succeeded, dead, cancelled, retried, released, run_seconds,
        wait_seconds, coalesce(calls, 0) AS calls, coalesce(input_tokens, 0) AS input_tokens,
        coalesce(output_tokens, 0) AS output_tokens
    FROM tally
    WHERE rowid <= ?1
        AND tenant <> ''
    UNION ALL
    SELECT
        started_minute, tenant, 0, succeeded + dead + cancelled + retried + released, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0
    FROM tally
    WHERE rowid <= ?1
        AND tenant <> ''
        AND started_minute IS NOT NULL
)
WHERE true
GROUP BY hour, tenant
ON CONFLICT (minute, tenant) DO UPDATE
SET
    enqueued = enqueued + excluded.enqueued,
    started = started + excluded.started,
    succeeded = succeeded + excluded.succeeded,
    dead = dead + excluded.dead,
    cancelled = cancelled + excluded.cancelled,
    retried = retried + excluded.retried,
    released = released + excluded.released,
    run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds,
    calls = calls + excluded.calls,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens

-- name: fold_totals
-- 1 last row
INSERT INTO total (
    queue, function, upstream, enqueued, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds, calls,
    input_tokens, output_tokens, total_seconds
)
SELECT
    queue, function, upstream, sum(enqueued), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
    sum(run_seconds), sum(wait_seconds), coalesce(sum(calls), 0), coalesce(sum(input_tokens), 0),
    coalesce(sum(output_tokens), 0), coalesce(sum(total_seconds), 0)
FROM tally
WHERE rowid <= ?1
GROUP BY queue, function, upstream
ON CONFLICT (queue, function, upstream) DO UPDATE
SET
    enqueued = enqueued + excluded.enqueued,
    succeeded = succeeded + excluded.succeeded,
    dead = dead + excluded.dead,
    cancelled = cancelled + excluded.cancelled,
    retried = retried + excluded.retried,
    released = released + excluded.released,
    run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds,
    calls = calls + excluded.calls,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    total_seconds = total_seconds + excluded.total_seconds

-- name: fold_events
-- 1 last row
INSERT INTO total_event (kind, name, function, reason, events)
SELECT kind, name, function, reason, sum(events)
FROM (
    SELECT 'retried' AS kind, queue AS name, function, coalesce(reason, '') AS reason, retried AS events
    FROM tally
    WHERE rowid <= ?1
        AND retried > 0
    UNION ALL
    SELECT 'dead', queue, function, coalesce(reason, ''), dead
    FROM tally
    WHERE rowid <= ?1
        AND dead > 0
    UNION ALL
    SELECT 'call', upstream, '', reason, ended_calls
    FROM tally
    WHERE rowid <= ?1
        AND ended_calls IS NOT NULL
    UNION ALL
    SELECT 'cache', queue, function, reason, cached
    FROM tally
    WHERE rowid <= ?1
        AND cached IS NOT NULL
)
WHERE true
GROUP BY kind, name, function, reason
ON CONFLICT (kind, name, function, reason) DO UPDATE
SET events = events + excluded.events

-- name: fold_total_times
-- 1 last row
INSERT INTO total_time (queue, function, kind, bucket, runs)
SELECT queue, function, kind, bucket, sum(runs)
FROM (
    SELECT
        queue, function, 'run' AS kind, run_bucket AS bucket, succeeded + dead + cancelled + retried + released AS runs
    FROM tally
    WHERE rowid <= ?1
        AND run_bucket IS NOT NULL
    UNION ALL
    SELECT queue, function, 'wait', wait_bucket, succeeded + dead + cancelled + retried + released
    FROM tally
    WHERE rowid <= ?1
        AND wait_bucket IS NOT NULL
    UNION ALL
    SELECT queue, function, 'total', total_bucket, succeeded + dead + cancelled
    FROM tally
    WHERE rowid <= ?1
        AND total_bucket IS NOT NULL
)
WHERE true
GROUP BY queue, function, kind, bucket
ON CONFLICT (queue, function, kind, bucket) DO UPDATE
SET runs = runs + excluded.runs

-- name: drop_folded
-- 1 last row
DELETE FROM tally
WHERE rowid <= ?1

-- name: has_old_minutes
-- 1 minute before which they were counted
SELECT 1
FROM rollup
WHERE minute < ?1
LIMIT 1

-- name: old_minutes
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM rollup
WHERE (minute, queue, function, upstream, tenant) IN (
    SELECT minute, queue, function, upstream, tenant
    FROM rollup
    WHERE minute < ?1
    LIMIT ?2
)

-- name: has_old_time_minutes
-- 1 minute before which they were counted
SELECT 1
FROM rollup_time
WHERE minute < ?1
LIMIT 1

-- name: old_time_minutes
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM rollup_time
WHERE (minute, queue, function, upstream, kind, bucket) IN (
    SELECT minute, queue, function, upstream, kind, bucket
    FROM rollup_time
    WHERE minute < ?1
    LIMIT ?2
)

-- name: has_old_hours
-- 1 minute before which they were counted
SELECT 1
FROM rollup_sum
WHERE span = 60
    AND minute < ?1
LIMIT 1

-- name: old_hours
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM rollup_sum
WHERE (span, minute, queue, function, upstream) IN (
    SELECT span, minute, queue, function, upstream
    FROM rollup_sum
    WHERE span = 60
        AND minute < ?1
    LIMIT ?2
)

-- name: has_old_time_hours
-- 1 minute before which they were counted
SELECT 1
FROM rollup_time_sum
WHERE span = 60
    AND minute < ?1
LIMIT 1

-- name: old_time_hours
-- 1 minute before which they were counted, 2 how many rows at most
DELETE FROM rollup_time_sum
WHERE (span, minute, queue, function, upstream, kind, bucket) IN (
    SELECT span, minute, queue, function, upstream, kind, bucket
    FROM rollup_time_sum
    WHERE span = 60
        AND minute < ?1
    LIMIT ?2
)

-- name: next_tenant_hour
-- 1 minute before which they may be summed
SELECT min(minute)
FROM rollup_tenant
WHERE minute % 1440 <> 0
    AND minute < ?1

-- name: sum_tenants
-- 1 first minute, 2 minutes of the period
INSERT INTO rollup_tenant (
    minute, tenant, enqueued, started, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds, calls,
    input_tokens, output_tokens
)
SELECT
    ?1, tenant, sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
    sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens)
FROM rollup_tenant
WHERE minute > ?1
    AND minute < ?1 + ?2
GROUP BY tenant
ON CONFLICT (minute, tenant) DO UPDATE
SET
    enqueued = enqueued + excluded.enqueued,
    started = started + excluded.started,
    succeeded = succeeded + excluded.succeeded,
    dead = dead + excluded.dead,
    cancelled = cancelled + excluded.cancelled,
    retried = retried + excluded.retried,
    released = released + excluded.released,
    run_seconds = run_seconds + excluded.run_seconds,
    wait_seconds = wait_seconds + excluded.wait_seconds,
    calls = calls + excluded.calls,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens

-- name: drop_tenants
-- 1 first minute, 2 minutes of the period
DELETE FROM rollup_tenant
WHERE minute > ?1
    AND minute < ?1 + ?2
