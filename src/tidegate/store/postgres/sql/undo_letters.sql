-- undo_letters: take redriven letters that have not started out of the main queue, and make them dead letters again.
-- moves: ready -> dead

-- name: pick
-- 1 operation, 2 how many at most
SELECT o.task_id, o.run, o.was, o.args, o.codec_tag
FROM /*schema*/operation_task AS o
INNER JOIN /*schema*/ready AS r ON r.task_id = o.task_id AND r.run = o.run
WHERE o.operation_id = $1
    AND o.state = 'sent'
    AND o.was IS NOT NULL
ORDER BY o.task_id
LIMIT $2
FOR UPDATE OF r SKIP LOCKED

-- name: leave
-- Returns the letters that no worker has claimed meanwhile.
-- 1 task ids, 2 runs that died
DELETE FROM /*schema*/ready AS r
USING unnest($1::uuid[], $2::integer[]) AS given (task_id, run)
WHERE r.task_id = given.task_id
    AND r.run = given.run
RETURNING r.task_id

-- name: dead
-- 1 task ids, 2 queues, 3 functions, 4 tenants, 5 reasons, 6 error classes, 7 messages, 8 runs, 9 workers or NULL,
-- 10 starts or NULL, 11 failures, 12 upstreams or NULL, 13 fingerprints or NULL
INSERT INTO /*schema*/dead (
    task_id, queue, function, tenant, reason, error_class, message, run, worker_id, started_at, failed_at, upstream,
    fingerprint
)
SELECT
    given.task_id, given.queue, given.function, given.tenant, given.reason, given.error_class, given.message, given.run,
    given.worker_id, given.started_at, given.failed_at, given.upstream, given.fingerprint
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::text[],
    $10::float8[], $11::float8[], $12::text[], $13::text[]
) AS given (
    task_id, queue, function, tenant, reason, error_class, message, run, worker_id, started_at, failed_at, upstream,
    fingerprint
)

-- name: task
-- 1 task ids, 2 queues, 3 attempts, 4 parks, 5 crashes, 6 losses, 7 releases, 8 attempts by rule as JSON or NULL,
-- 9 redrives, 10 last redrives or NULL, 11 first starts or NULL, 12 parked since or NULL, 13 paused seconds,
-- 14 deadlines or NULL
UPDATE /*schema*/task AS t
SET
    queue = given.queue,
    attempts = given.attempts,
    parks = given.parks,
    crashes = given.crashes,
    losses = given.losses,
    releases = given.releases,
    rule_attempts = given.rule_attempts,
    redrives = given.redrives,
    redriven_at = given.redriven_at,
    first_started_at = given.first_started_at,
    parked_at = given.parked_at,
    paused_seconds = given.paused_seconds,
    deadline_at = given.deadline_at
FROM unnest(
    $1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::text[],
    $9::integer[], $10::float8[], $11::float8[], $12::float8[], $13::float8[], $14::float8[]
) AS given (
    id, queue, attempts, parks, crashes, losses, releases, rule_attempts, redrives, redriven_at, first_started_at,
    parked_at, paused_seconds, deadline_at
)
WHERE t.id = given.id

-- name: args
-- 1 task ids, 2 arguments as bytes, 3 codec tags
UPDATE /*schema*/payload AS p
SET args = given.args, codec_tag = given.codec_tag
FROM unnest($1::uuid[], $2::bytea[], $3::text[]) AS given (task_id, args, codec_tag)
WHERE p.task_id = given.task_id

-- name: undone
-- 1 task ids, 2 operation
UPDATE /*schema*/operation_task
SET state = 'undone', was = NULL, args = NULL
WHERE operation_id = $2
    AND task_id = ANY ($1::uuid[])

-- name: drop_chosen
-- Letters that were never sent.
-- 1 operation, 2 how many at most
UPDATE /*schema*/operation_task
SET state = 'skipped', why = 'not sent'
WHERE operation_id = $1
    AND task_id = ANY (ARRAY (
        SELECT task_id
        FROM /*schema*/operation_task
        WHERE operation_id = $1
            AND state = 'chosen'
        LIMIT $2
    ))
RETURNING task_id

-- name: free_unique
-- Free the unique names that these tasks hold until they are final.
-- 1 task ids
DELETE FROM /*schema*/key AS k
USING /*schema*/task AS t
WHERE t.id = ANY ($1::uuid[])
    AND t.unique_until_final
    AND k.kind = 'unique'
    AND k.tenant = t.tenant
    AND k.name = t.unique_name
    AND k.task_id = t.id

-- name: note
-- 1 task ids, 2 why of each, 3 now
INSERT INTO /*schema*/action (task_id, at, kind, why)
SELECT given.task_id, $3, 'redrive undone', given.why
FROM unnest($1::uuid[], $2::text[]) AS given (task_id, why)
ON CONFLICT (task_id, at, kind) DO UPDATE
SET why = excluded.why
