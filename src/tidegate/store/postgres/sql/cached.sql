-- cached: results of steps that tasks with the same content share. Who does the work is not recorded as a lock, but read from
-- the step of that task: so it ends with the step or with its run, and nothing must be cleaned up after a kill.

-- shared: is_led
EXISTS (
    SELECT 1
    FROM /*schema*/running AS r
    JOIN /*schema*/step AS l ON l.task_id = r.task_id AND l.key = c.leader_key
    WHERE r.task_id = c.leader_id
        AND r.run = c.leader_run
        AND l.run = c.leader_run
        AND l.state = 'open'
        AND l.doubted = 0
)

-- name: lock
-- Locks until the end of the transaction, so that of two tasks that begin the same work one sees the other. The number is
-- specific to Tidegate.
-- 1 digest
SELECT pg_advisory_xact_lock(7283116, hashtext($1))

-- name: look
-- What is known of a content and of the task's own step. A result is returned if it is not older than the step allows. Its
-- data is NULL if it was too large to be kept.
-- 1 at, 2 task id, 3 run, 4 key, 5 digest, 6 tenant, 7 most seconds since the result was made
SELECT
    EXISTS (SELECT 1 FROM /*schema*/running AS x WHERE x.task_id = $2 AND x.run = $3), s.state, s.run, s.attempt,
    w.task_id IS NOT NULL, coalesce(c.made_at > m.now - $7::float8 AND c.expires_at > m.now, false),
    CASE WHEN c.made_at > m.now - $7::float8 AND c.expires_at > m.now THEN c.data END, c.codec_tag, c.task_id, c.tenant,
    coalesce(/*is_led*/, false), c.leader_id, c.leader_run, c.leader_key
FROM (SELECT /*schema*/moment($1) AS now) AS m
LEFT JOIN /*schema*/step AS s ON s.task_id = $2 AND s.key = $4
LEFT JOIN /*schema*/cached_result AS c ON c.digest = $5 AND (c.tenant = $6 OR c.is_shared = 1)
LEFT JOIN /*schema*/cache_wait AS w ON w.task_id = $2 AND w.digest = $5

-- name: answer
-- End a step of a current run with a result from the cache, unless another run has begun the step. Returns a row if it
-- did.
-- 1 at, 2 task id, 3 run, 4 key, 5 attempt, 6 name, 7 what to do in doubt, 8 upstream, 9 fingerprint of the arguments,
-- 10 result, 11 codec, 12 the task whose result it is
INSERT INTO /*schema*/step AS s (
    task_id, key, name, state, run, attempt, on_doubt, arguments, tries, begun_at, ended_at, codec, data, upstream,
    cached_from
)
SELECT
    $2::uuid, $4::text, $6::text, 'done', $3::integer, $5::integer, $7::text, $9::text, 1, m.now, m.now, $11::text,
    $10::bytea, $8::text, $12::text
FROM (SELECT /*schema*/moment($1) AS now) AS m
CROSS JOIN LATERAL (
    SELECT 1
    FROM /*schema*/running AS x
    WHERE x.task_id = $2::uuid
        AND x.run = $3::integer
    FOR KEY SHARE
) AS current
ON CONFLICT (task_id, key) DO UPDATE
SET
    name = excluded.name,
    state = 'done',
    run = excluded.run,
    attempt = excluded.attempt,
    on_doubt = excluded.on_doubt,
    arguments = excluded.arguments,
    tries = s.tries + 1,
    begun_at = excluded.begun_at,
    ended_at = excluded.ended_at,
    codec = excluded.codec,
    data = excluded.data,
    upstream = excluded.upstream,
    cause = '',
    request_id = '',
    input_tokens = NULL,
    output_tokens = NULL,
    cached_from = excluded.cached_from
WHERE s.state = 'failed'
RETURNING 1

-- name: mark
-- 1 task id, 2 key, 3 the task whose result it is
UPDATE /*schema*/step
SET cached_from = $3
WHERE task_id = $1
    AND key = $2

-- name: lead
-- Record that a step of a task does the work now. The result of an expired row is removed.
-- 1 at, 2 digest, 3 tenant, 4 whether it is shared, 5 task id, 6 run, 7 key, 8 seconds for which the row is kept
INSERT INTO /*schema*/cached_result AS c (
    digest, tenant, is_shared, version, leader_id, leader_run, leader_key, kept_until_at
)
VALUES ($2, $3, $4, 1, $5, $6, $7, /*schema*/moment($1) + $8::float8)
ON CONFLICT (digest) DO UPDATE
SET
    version = c.version + 1,
    leader_id = excluded.leader_id,
    leader_run = excluded.leader_run,
    leader_key = excluded.leader_key,
    elected_id = NULL,
    elected_at = NULL,
    data = CASE WHEN c.expires_at > /*schema*/moment($1) THEN c.data END,
    kept_until_at = greatest(c.kept_until_at, excluded.kept_until_at)
WHERE c.tenant = excluded.tenant
    OR c.is_shared = 1

-- name: keep
-- Keep a result, unless there is one already that is not older than the step allows.
-- 1 at, 2 digest, 3 tenant, 4 whether it is shared, 5 task id, 6 seconds for which it is valid, 7 codec, 8 result or NULL
INSERT INTO /*schema*/cached_result AS c (
    digest, tenant, is_shared, version, task_id, codec_tag, data, made_at, expires_at, kept_until_at
)
SELECT $2, $3, $4, 1, $5::uuid, $7, $8, m.now, m.now + $6::float8, m.now + $6::float8
FROM (SELECT /*schema*/moment($1) AS now) AS m
ON CONFLICT (digest) DO UPDATE
SET
    tenant = excluded.tenant,
    version = c.version + 1,
    task_id = excluded.task_id,
    codec_tag = excluded.codec_tag,
    data = excluded.data,
    made_at = excluded.made_at,
    expires_at = excluded.expires_at,
    kept_until_at = greatest(c.kept_until_at, excluded.kept_until_at)
WHERE (c.tenant = excluded.tenant OR c.is_shared = 1)
    AND (c.made_at > excluded.made_at - $6::float8 AND c.expires_at > excluded.made_at) IS NOT TRUE

-- name: count
-- 1 at, 2 task id, 3 hit, shared or miss
INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, reason, cached)
SELECT floor(/*schema*/moment($1) / 60), queue, function, upstream, tenant, $3, 1
FROM /*schema*/task
WHERE id = $2

-- name: clear_waits
-- 1 task id
DELETE FROM /*schema*/cache_wait
WHERE task_id = $1

-- name: add_wait
-- 1 task id, 2 digest, 3 the moment after which a result must have been made
INSERT INTO /*schema*/cache_wait (task_id, digest, newer_than, is_asleep)
VALUES ($1, $2, $3, 1)
ON CONFLICT DO NOTHING

-- name: end_wait
-- 1 task id, 2 digest
DELETE FROM /*schema*/cache_wait
WHERE task_id = $1
    AND digest = $2

-- name: wakeable
-- Suspended tasks that are not due and whose result is there, or whose work nobody does and nobody was woken to do. Returns
-- the task, the digest, the version of its row or NULL, and whether the result is there.
-- 1 at, 2 seconds for which a task that was woken to do the work may take to begin it, 3 how many at most
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($1) AS now
),
content AS MATERIALIZED (
    SELECT
        d.digest, c.version, CASE WHEN c.expires_at > m.now THEN c.made_at END AS made_at,
        NOT coalesce(/*is_led*/, false)
        AND NOT coalesce(
            c.elected_at > m.now - $2::float8
            AND (
                EXISTS (SELECT 1 FROM /*schema*/ready AS x WHERE x.task_id = c.elected_id)
                OR EXISTS (SELECT 1 FROM /*schema*/running AS x WHERE x.task_id = c.elected_id)
                OR EXISTS (SELECT 1 FROM /*schema*/waiting AS x WHERE x.task_id = c.elected_id AND x.due_at <= m.now)
            ),
            false
        ) AS is_free
    FROM clock AS m
    CROSS JOIN (SELECT DISTINCT digest FROM /*schema*/cache_wait WHERE is_asleep = 1) AS d
    LEFT JOIN /*schema*/cached_result AS c ON c.digest = d.digest
)
SELECT w.task_id, w.digest, k.version, coalesce(k.made_at > w.newer_than, false) AS is_answered
FROM content AS k
CROSS JOIN clock AS m
JOIN /*schema*/cache_wait AS w ON w.digest = k.digest AND w.is_asleep = 1
JOIN /*schema*/waiting AS p ON p.task_id = w.task_id
WHERE (k.is_free OR k.made_at > w.newer_than)
    AND p.state = 'suspended'
    AND (p.due_at IS NULL OR p.due_at > m.now)
ORDER BY is_answered DESC, p.rank, w.task_id
LIMIT $3

-- name: elect
-- Record which task was woken to do the work, unless the row has changed.
-- 1 at, 2 digest, 3 version, 4 task id
UPDATE /*schema*/cached_result
SET
    version = version + 1,
    elected_id = $4,
    elected_at = /*schema*/moment($1)
WHERE digest = $2
    AND version = $3

-- name: awake
-- 1 ids
UPDATE /*schema*/cache_wait
SET is_asleep = 0
WHERE task_id = ANY ($1::uuid[])

-- name: clear_left_behind
-- Remove rows of tasks that have ended: they were cancelled, died or went on for another reason.
-- 1 how many at most
DELETE FROM /*schema*/cache_wait
WHERE ctid = ANY (ARRAY (
    SELECT w.ctid
    FROM /*schema*/cache_wait AS w
    WHERE (SELECT 1 FROM /*schema*/archive AS a WHERE a.task_id = w.task_id LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM /*schema*/dead AS d WHERE d.task_id = w.task_id LIMIT 1) IS NOT NULL
    LIMIT $1
    FOR UPDATE OF w SKIP LOCKED
))
