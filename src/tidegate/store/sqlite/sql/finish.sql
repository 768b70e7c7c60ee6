-- finish: write the outcomes of runs. Every statement that ends a run names task and run: the fence.
-- Successes are written in bulk: the code compares the runs, then runs `succeed`, `count_succeeded` and `end_all` for
-- those that match. Other outcomes are written one by one: `end` removes the row, the other statements write the task's
-- next state.
-- moves: running -> succeeded, running -> retrying, running -> ready, running -> dead, running -> cancelled
-- moves: running -> suspended

-- name: current
-- The current runs of these tasks.
-- 1 ids: carray of 16-byte ids
SELECT r.task_id, r.run, r.upstream, r.started_at, r.probe, r.has_on_final
FROM carray(?1) AS given
CROSS JOIN running AS r ON r.task_id = given.value

-- name: unique_names
-- The names that these tasks free when they are final.
-- 1 ids: carray of 16-byte ids
SELECT r.task_id, r.tenant, r.unique_name
FROM carray(?1) AS given
CROSS JOIN running AS r ON r.task_id = given.value
WHERE r.unique_name IS NOT NULL

-- name: succeed
-- 1 ids: carray of 16-byte ids, 2 now
INSERT INTO archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
SELECT r.task_id, 'succeeded', r.run, r.worker_id, r.ready_at, r.started_at, ?2
FROM carray(?1) AS given
CROSS JOIN running AS r ON r.task_id = given.value

-- name: count_succeeded
-- 1 ids: carray of 16-byte ids, 2 now, 3 minute
INSERT INTO tally (
    minute, queue, function, upstream, tenant, succeeded, run_seconds, wait_seconds, first_final_at, started_minute,
    run_bucket, wait_bucket, total_seconds, total_bucket
)
SELECT
    ?3, r.queue, r.function, r.upstream, r.tenant, count(*), sum(?2 - r.started_at),
    sum(r.started_at - r.ready_at), ?2, cast(r.started_at / 60 AS INTEGER) AS started,
    CASE WHEN ?2 - r.started_at > 0.01 THEN min(21, cast(ceil(log2((?2 - r.started_at) / 0.01)) AS INTEGER)) ELSE 0
    END AS ran,
    CASE WHEN r.started_at - r.ready_at > 0.01
        THEN min(21, cast(ceil(log2((r.started_at - r.ready_at) / 0.01)) AS INTEGER)) ELSE 0
    END AS waited,
    sum(?2 - r.since_at),
    CASE WHEN ?2 - r.since_at > 0.01 THEN min(21, cast(ceil(log2((?2 - r.since_at) / 0.01)) AS INTEGER))
        WHEN r.since_at IS NOT NULL THEN 0
    END AS took
FROM carray(?1) AS given
CROSS JOIN running AS r ON r.task_id = given.value
GROUP BY r.queue, r.function, r.upstream, r.tenant, started, ran, waited, took

-- name: end_all
-- 1 ids: carray of 16-byte ids
DELETE FROM running
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: result
-- 1 task id, 2 codec tag, 3 result as bytes
INSERT INTO result (task_id, codec_tag, data)
VALUES (?, ?, ?)

-- name: end
-- 1 task id, 2 run
DELETE FROM running
WHERE task_id = ?1
    AND run = ?2
RETURNING
    worker_id, queue, priority, upstream, function, tenant, ready_at, started_at, unique_name,
    cancel_requested_at IS NOT NULL AS cancel_requested, probe, has_on_final, since_at

-- name: attempt
-- 1 task id, 2 run, 3 worker id, 4 started moment, 5 now, 6 outcome, 7 charge, 8 verdict, 9 reason,
-- 10 error class, 11 message, 12 traceback, 13 status or NULL, 14 code, 15 request id, 16 evidence,
-- 17 next run's moment or NULL, 18 why, 19 fingerprint of a death or of a failure without a rule, else NULL
INSERT INTO attempt (
    task_id, run, worker_id, started_at, ended_at, outcome, charge, verdict, reason, error_class, message,
    traceback, status, code, request_id, evidence, next_run_at, why, fingerprint
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: spend
-- Add to the task's counters.
-- 1 task id, 2 started moment, 3 attempts, 4 parks, 5 crashes, 6 losses, 7 releases (each 0 or 1),
-- 8 now if the total timeout stops here, else NULL, 9 reason or NULL to keep the last,
-- 10 message or NULL to keep the last
UPDATE task
SET
    first_started_at = coalesce(first_started_at, ?2),
    attempts = attempts + ?3,
    parks = parks + ?4,
    crashes = crashes + ?5,
    losses = losses + ?6,
    releases = releases + ?7,
    parked_at = ?8,
    last_reason = coalesce(?9, last_reason),
    last_message = coalesce(?10, last_message)
WHERE id = ?1

-- name: use
-- Add the usage of a run's calls to the usage of its task.
-- 1 task id, 2 calls, then tokens: 3 input, 4 cached, 5 written to a cache, 6 output, 7 reasoning
INSERT INTO usage (
    task_id, calls, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens
)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id) DO UPDATE
SET
    calls = calls + excluded.calls,
    input_tokens = input_tokens + excluded.input_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens

-- name: rules
-- 1 task id
SELECT rule_attempts
FROM task
WHERE id = ?1

-- name: spend_rule
-- 1 task id, 2 charged attempts by rule as JSON
UPDATE task
SET rule_attempts = ?2
WHERE id = ?1

-- name: retry
-- 1 task id, 2 due moment, 3 queue, 4 priority, 5 upstream, 6 function, 7 tenant, 8 rank, 9 run, 10 why,
-- 11 whether its next run spends the retry budget, 12 whether it may use the reserved part: 1, or 2 for the last
-- attempt, 13 now, 14 earliest moment that the server allows or NULL
INSERT INTO waiting (
    task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run, why, spends, urgent,
    since_at, floor_at
)
VALUES (?, 'retrying', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: suspend
-- 1 task id, 2 due moment or NULL, 3 queue, 4 priority, 5 upstream, 6 function, 7 tenant, 8 rank, 9 run, 10 why, 11 now
INSERT INTO waiting (
    task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run, why, since_at
)
VALUES (?, 'suspended', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: forget_suspensions
-- Delete the records of a task's older suspensions: only its latest ones are kept.
-- 1 task id, 2 run up to which they are deleted
DELETE FROM attempt
WHERE task_id = ?1
    AND run <= ?2
    AND charge = 'suspension'

-- name: release
-- 1 task id, 2 queue, 3 priority, 4 upstream, 5 function, 6 tenant, 7 rank, 8 now, 9 run
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: dead_letter
-- 1 task id, 2 queue, 3 function, 4 tenant, 5 reason, 6 error class, 7 message, 8 run, 9 worker id,
-- 10 started moment, 11 now, 12 fingerprint
INSERT INTO dead (
    task_id, queue, function, tenant, reason, error_class, message, run, worker_id, started_at, failed_at,
    fingerprint
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: cancel
-- 1 task id, 2 run, 3 worker id, 4 moment it was ready, 5 started moment, 6 now
INSERT INTO archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
VALUES (?, 'cancelled', ?, ?, ?, ?, ?)

-- name: count
-- 1 minute, 2 queue, 3 function, 4 upstream, 5 tenant, 6 dead, 7 cancelled, 8 retried, 9 released,
-- 10 seconds run, 11 seconds waited, 12 now if one became final, else NULL, 13 minute in which the runs started or NULL
-- for none, 14 bucket of their run times, 15 of their waits, 16 seconds from enqueue to end and 17 their bucket, or NULL, 18 why
-- they were retried or died
INSERT INTO tally (
    minute, queue, function, upstream, tenant, dead, cancelled, retried, released, run_seconds, wait_seconds,
    first_final_at, started_minute, run_bucket, wait_bucket, total_seconds, total_bucket, reason
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: count_calls
-- 1 task id, 2 upstream of the calls, 3 how they ended, 4 how many, 5 now
INSERT INTO tally (minute, queue, function, upstream, tenant, reason, ended_calls)
SELECT cast(?5 / 60 AS INTEGER), queue, function, ?2, tenant, ?3, ?4
FROM task
WHERE id = ?1

-- name: count_usage
-- 1 task id, 2 calls, 3 input tokens, 4 output tokens, 5 now
INSERT INTO tally (minute, queue, function, upstream, tenant, calls, input_tokens, output_tokens)
SELECT cast(?5 / 60 AS INTEGER), queue, function, upstream, tenant, ?2, ?3, ?4
FROM task
WHERE id = ?1

-- name: was_success
-- Whether exactly this run succeeded.
-- 1 task id, 2 run
SELECT 1
FROM archive
WHERE task_id = ?1
    AND run = ?2
    AND state = 'succeeded'

-- name: was_attempt
-- The record of this run. It distinguishes a resend from a late finish of a run that was requeued.
-- 1 task id, 2 run
SELECT outcome, charge, verdict, reason, error_class, message, why
FROM attempt
WHERE task_id = ?1
    AND run = ?2
