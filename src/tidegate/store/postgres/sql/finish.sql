-- finish: write the outcomes of runs. Every statement that ends a run names task and run: the fence. Rows are locked
-- in the order of their ids, so that two batches cannot deadlock.
-- moves: running -> succeeded, running -> retrying, running -> ready, running -> dead, running -> cancelled
-- moves: running -> suspended

-- name: succeed
-- End the runs that are current, in one statement. If another transaction changes a row at the same moment (a cancel
-- request), the row is locked but its new version is not seen, so the row stays. Then run the statement again. Deleted
-- rows are looked up in a hash, as in `take` of the claim. `gate` is the state of the upstream's gate, in one row of each
-- upstream.
-- 1 at, 2 task ids in order, 3 runs, 4 task ids of those with a result other than null, 5 codec tags, 6 results, 7 whether to
-- end tasks whose final state enqueues a task: that needs a transaction
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($1) AS now
),
held AS MATERIALIZED (
    SELECT
        r.row_location, r.task_id, r.run, r.worker_id, r.queue, r.upstream, r.function, r.tenant, r.ready_at, r.started_at,
        r.unique_name, r.probe, r.has_on_final, r.since_at
    FROM unnest($2::uuid[], $3::integer[]) AS given (task_id, run)
    CROSS JOIN LATERAL (
        SELECT
            x.ctid AS row_location, x.task_id, x.run, x.worker_id, x.queue, x.upstream, x.function, x.tenant, x.ready_at,
            x.started_at, x.unique_name, x.probe, x.has_on_final, x.since_at
        FROM /*schema*/running AS x
        WHERE x.task_id = given.task_id
            AND x.run = given.run
            AND ($7 OR NOT x.has_on_final)
        FOR UPDATE
    ) AS r
),
gone AS (
    DELETE FROM /*schema*/running
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM held))
    RETURNING task_id
),
ended AS MATERIALIZED (
    SELECT
        h.task_id, h.run, h.worker_id, h.queue, h.upstream, h.function, h.tenant, h.ready_at, h.started_at,
        h.unique_name, h.probe, h.has_on_final, h.since_at
    FROM held AS h
    WHERE (h.task_id IN (SELECT task_id FROM gone)) IS TRUE
),
archived AS (
    INSERT INTO /*schema*/archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
    SELECT e.task_id, 'succeeded', e.run, e.worker_id, e.ready_at, e.started_at, clock.now
    FROM ended AS e
    CROSS JOIN clock
),
kept AS (
    INSERT INTO /*schema*/result (task_id, codec_tag, data)
    SELECT given.task_id, given.codec_tag, given.data
    FROM unnest($4::uuid[], $5::text[], $6::bytea[]) AS given (task_id, codec_tag, data)
    WHERE (given.task_id IN (SELECT task_id FROM ended)) IS TRUE
),
counted AS (
    INSERT INTO /*schema*/tally (
        minute, queue, function, upstream, tenant, succeeded, run_seconds, wait_seconds, first_final_at, started_minute,
        run_bucket, wait_bucket, total_seconds, total_bucket
    )
    SELECT
        floor(clock.now / 60), e.queue, e.function, e.upstream, e.tenant, count(*),
        sum(clock.now - e.started_at), sum(e.started_at - e.ready_at), clock.now, floor(e.started_at / 60) AS started,
        /*schema*/bucket_1(clock.now - e.started_at) AS ran, /*schema*/bucket_1(e.started_at - e.ready_at) AS waited,
        sum(clock.now - e.since_at),
        CASE WHEN e.since_at IS NOT NULL THEN /*schema*/bucket_1(clock.now - e.since_at) END AS took
    FROM ended AS e
    CROSS JOIN clock
    GROUP BY clock.now, e.queue, e.function, e.upstream, e.tenant, started, ran, waited, took
),
freed AS (
    DELETE FROM /*schema*/key
    WHERE ctid = ANY (ARRAY (
        SELECT name.row_location
        FROM ended AS e
        CROSS JOIN LATERAL (
            SELECT k.ctid AS row_location
            FROM /*schema*/key AS k
            WHERE k.kind = 'unique'
                AND k.tenant = e.tenant
                AND k.name = e.unique_name
                AND k.task_id = e.task_id
            FOR UPDATE
        ) AS name
        WHERE e.unique_name IS NOT NULL
    ))
)
SELECT
    e.task_id, e.upstream, clock.now - e.started_at AS seconds, e.probe, e.run, e.has_on_final, clock.now,
    CASE
        WHEN e.upstream <> '' AND row_number() OVER (PARTITION BY e.upstream) = 1 THEN (
            SELECT g.state
            FROM /*schema*/gate AS g
            WHERE g.kind = 'upstream'
                AND g.name = e.upstream
        )
    END AS gate
FROM ended AS e
CROSS JOIN clock

-- name: end
-- End the runs that are current; return their rows and the current time.
-- 1 at, 2 task ids in order, 3 runs
WITH held AS MATERIALIZED (
    SELECT r.row_location
    FROM unnest($2::uuid[], $3::integer[]) AS given (task_id, run)
    CROSS JOIN LATERAL (
        SELECT x.ctid AS row_location
        FROM /*schema*/running AS x
        WHERE x.task_id = given.task_id
            AND x.run = given.run
        FOR UPDATE
    ) AS r
)
DELETE FROM /*schema*/running
WHERE ctid = ANY (ARRAY (SELECT row_location FROM held))
RETURNING
    task_id, /*schema*/moment($1) AS now, worker_id, queue, priority, upstream, function, tenant, ready_at, started_at,
    unique_name, cancel_requested_at IS NOT NULL AS cancel_requested, probe, has_on_final, since_at

-- name: recorded
-- For runs that could not be ended: whether the run is current after all, whether it succeeded, and its record, to
-- distinguish a resend from a late finish of a run that was requeued.
-- 1 task ids, 2 runs
SELECT
    given.task_id, given.run,
    EXISTS (
        SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = given.task_id AND r.run = given.run
    ) AS is_current,
    EXISTS (
        SELECT 1
        FROM /*schema*/archive AS a
        WHERE a.task_id = given.task_id AND a.run = given.run AND a.state = 'succeeded'
    ) AS was_success,
    p.outcome, p.charge, p.verdict, p.reason, p.error_class, p.message, p.why
FROM unnest($1::uuid[], $2::integer[]) AS given (task_id, run)
LEFT JOIN /*schema*/attempt AS p ON p.task_id = given.task_id AND p.run = given.run

-- name: attempt
-- 1 task id, 2 run, 3 worker id, 4 started moment, 5 now, 6 outcome, 7 charge, 8 verdict, 9 reason,
-- 10 error class, 11 message, 12 traceback, 13 status or NULL, 14 code, 15 request id, 16 evidence,
-- 17 next run's moment or NULL, 18 why, 19 fingerprint of a death or of a failure without a rule, else NULL
INSERT INTO /*schema*/attempt (
    task_id, run, worker_id, started_at, ended_at, outcome, charge, verdict, reason, error_class, message,
    traceback, status, code, request_id, evidence, next_run_at, why, fingerprint
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)

-- name: spend
-- Add to the task's counters.
-- 1 task id, 2 started moment, 3 attempts, 4 parks, 5 crashes, 6 losses, 7 releases (each 0 or 1),
-- 8 now if the total timeout stops here, else NULL, 9 reason or NULL to keep the last,
-- 10 message or NULL to keep the last
UPDATE /*schema*/task
SET
    first_started_at = coalesce(first_started_at, $2),
    attempts = attempts + $3,
    parks = parks + $4,
    crashes = crashes + $5,
    losses = losses + $6,
    releases = releases + $7,
    parked_at = $8,
    last_reason = coalesce($9, last_reason),
    last_message = coalesce($10, last_message)
WHERE id = $1

-- name: use
-- Add the usage of a run's calls to the usage of its task.
-- 1 task id, 2 calls, then tokens: 3 input, 4 cached, 5 written to a cache, 6 output, 7 reasoning
INSERT INTO /*schema*/usage AS u (
    task_id, calls, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens
)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (task_id) DO UPDATE
SET
    calls = u.calls + excluded.calls,
    input_tokens = u.input_tokens + excluded.input_tokens,
    cached_tokens = u.cached_tokens + excluded.cached_tokens,
    cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens,
    reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens

-- name: rules
-- 1 task ids
SELECT id, rule_attempts
FROM /*schema*/task
WHERE id = ANY ($1::uuid[])

-- name: spend_rule
-- 1 task id, 2 charged attempts by rule as JSON
UPDATE /*schema*/task
SET rule_attempts = $2
WHERE id = $1

-- name: retry
-- 1 task id, 2 due moment, 3 queue, 4 priority, 5 upstream, 6 function, 7 tenant, 8 rank, 9 run, 10 why,
-- 11 whether its next run spends the retry budget, 12 whether it may use the reserved part: 1, or 2 for the last
-- attempt, 13 now, 14 earliest moment that the server allows or NULL
INSERT INTO /*schema*/waiting (
    task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run, why, spends, urgent,
    since_at, floor_at
)
VALUES ($1, 'retrying', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: suspend
-- 1 task id, 2 due moment or NULL, 3 queue, 4 priority, 5 upstream, 6 function, 7 tenant, 8 rank, 9 run, 10 why, 11 now
INSERT INTO /*schema*/waiting (
    task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run, why, since_at
)
VALUES ($1, 'suspended', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: forget_suspensions
-- Delete the records of a task's older suspensions: only its latest ones are kept.
-- 1 task id, 2 run up to which they are deleted
DELETE FROM /*schema*/attempt
WHERE task_id = $1
    AND run <= $2
    AND charge = 'suspension'

-- name: release
-- 1 task id, 2 queue, 3 priority, 4 upstream, 5 function, 6 tenant, 7 rank, 8 now, 9 run
INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: dead_letter
-- 1 task id, 2 queue, 3 function, 4 tenant, 5 reason, 6 error class, 7 message, 8 run, 9 worker id,
-- 10 started moment, 11 now, 12 fingerprint
INSERT INTO /*schema*/dead (
    task_id, queue, function, tenant, reason, error_class, message, run, worker_id, started_at, failed_at,
    fingerprint
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: cancel
-- 1 task id, 2 run, 3 worker id, 4 moment it was ready, 5 started moment, 6 now
INSERT INTO /*schema*/archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
VALUES ($1, 'cancelled', $2, $3, $4, $5, $6)

-- name: free_name
-- Free a unique name if this task holds it.
-- 1 tenant, 2 name, 3 task id
DELETE FROM /*schema*/key
WHERE kind = 'unique'
    AND tenant = $1
    AND name = $2
    AND task_id = $3

-- name: count
-- The row is appended, so that writers do not wait for each other. Maintenance folds the row into the roll-up.
-- 1 minute, 2 queue, 3 function, 4 upstream, 5 tenant, 6 dead, 7 cancelled, 8 retried, 9 released,
-- 10 seconds run, 11 seconds waited, 12 now if one became final, else NULL, 13 minute in which the runs started or NULL
-- for none, 14 bucket of their run times, 15 of their waits, 16 seconds from enqueue to end and 17 their bucket, or NULL, 18 why
-- they were retried or died
INSERT INTO /*schema*/tally (
    minute, queue, function, upstream, tenant, dead, cancelled, retried, released, run_seconds, wait_seconds,
    first_final_at, started_minute, run_bucket, wait_bucket, total_seconds, total_bucket, reason
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: count_calls
-- 1 task id, 2 upstream of the calls, 3 how they ended, 4 how many, 5 at
INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, reason, ended_calls)
SELECT floor(/*schema*/moment($5) / 60), queue, function, $2, tenant, $3, $4
FROM /*schema*/task
WHERE id = $1

-- name: count_usage
-- 1 task id, 2 calls, 3 input tokens, 4 output tokens, 5 at
INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, calls, input_tokens, output_tokens)
SELECT floor(/*schema*/moment($5) / 60), queue, function, upstream, tenant, $2, $3, $4
FROM /*schema*/task
WHERE id = $1
