-- enqueue: store new tasks with their payloads, ready or scheduled, and count them. The function `enqueue_1` stores
-- one task, or several with names. Without names, `plain` stores one ready task, and COPY stores many.
-- moves: new -> ready, new -> scheduled, new -> held

-- name: one_task
-- 1 identity of the expected database, or NULL, 2 at, 3 id, 4 function, 5 queue, 6 priority, 7 upstream,
-- 8 tenant, 9 codec tag, 10 arguments as bytes, 11 fingerprint, 12 key or NULL, 13 seconds it is kept, 14 unique
-- name or NULL, 15 seconds it is kept or NULL for until the final state, 16 seconds of delay, 17 moment it is due
-- or NULL, 18 deadline seconds or NULL, 19 timeout seconds or NULL, 20 max attempts or NULL, 21 labels as JSON
-- or NULL, 22 total timeout seconds or NULL, 23 deadline moment or NULL, which overrides 18
SELECT holder, answer
FROM /*schema*/enqueue_1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23
)

-- name: plain
-- Store one task that wants no names and is ready at once. The statement fails if its id is stored already.
-- 1 at, 2 id, 3 function, 4 queue, 5 priority, 6 upstream, 7 tenant, 8 codec tag, 9 arguments as bytes,
-- 10 deadline seconds or NULL, 11 timeout seconds or NULL, 12 max attempts or NULL, 13 labels as JSON or NULL,
-- 14 total timeout seconds or NULL, 15 deadline moment or NULL
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($1) AS now
),
stored AS (
    INSERT INTO /*schema*/task (
        id, function, queue, priority, upstream, tenant, deadline_seconds, deadline_at, timeout_seconds,
        max_attempts, labels, enqueued_at, total_timeout_seconds
    )
    SELECT $2, $3, $4, $5, $6, $7, $10, coalesce($15, clock.now + $10), $11, $12, $13, clock.now, $14
    FROM clock
),
carried AS (
    INSERT INTO /*schema*/payload (task_id, codec_tag, args)
    VALUES ($2, $8, $9)
),
placed AS (
    INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
    SELECT $2, $4, $5, $6, $3, $7, clock.now, clock.now, 0
    FROM clock
)
INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, enqueued)
SELECT floor(clock.now / 60), $4, $3, $6, $7, 1
FROM clock

-- name: several_tasks
-- Same as `one_task` for several tasks, in the given order; each parameter from the third on is an array. All
-- tasks get the same time, so the order in which names are taken is not the order of claims.
-- 1 identity, 2 at, 3 ids, 4 functions, 5 queues, 6 priorities, 7 upstreams, 8 tenants, 9 codec tags,
-- 10 arguments, 11 fingerprints, 12 keys, 13 their seconds, 14 unique names, 15 their seconds, 16 delays,
-- 17 due moments, 18 deadlines, 19 timeouts, 20 max attempts, 21 labels, 22 total timeouts,
-- 23 deadline moments
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($2) AS now
)
SELECT a.holder, a.answer
FROM clock
CROSS JOIN unnest(
    $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::text[], $9::text[], $10::bytea[],
    $11::bytea[], $12::text[], $13::double precision[], $14::text[], $15::double precision[],
    $16::double precision[], $17::double precision[], $18::double precision[], $19::double precision[],
    $20::integer[], $21::jsonb[], $22::double precision[], $23::double precision[]
) WITH ORDINALITY AS g (
    id, function, queue, priority, upstream, tenant, codec_tag, args, fingerprint, key_name, key_seconds,
    unique_name, unique_seconds, delay_seconds, run_at, deadline_seconds, timeout_seconds, max_attempts, labels,
    total_timeout_seconds, deadline_at, position
)
CROSS JOIN LATERAL /*schema*/enqueue_1(
    $1, clock.now, g.id, g.function, g.queue, g.priority, g.upstream, g.tenant, g.codec_tag, g.args, g.fingerprint,
    g.key_name, g.key_seconds, g.unique_name, g.unique_seconds, g.delay_seconds, g.run_at, g.deadline_seconds,
    g.timeout_seconds, g.max_attempts, g.labels, g.total_timeout_seconds, g.deadline_at
) AS a
ORDER BY g.position

-- name: count
-- 1 minute, 2 queue, 3 function, 4 upstream, 5 tenant, 6 tasks enqueued
INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, enqueued)
VALUES ($1, $2, $3, $4, $5, $6)

-- name: hold
-- Put new tasks that wait for other tasks among the held ones. They were ready in this transaction only.
-- 1 ids: array of uuid
INSERT INTO /*schema*/waiting (
    task_id, state, queue, priority, upstream, function, tenant, rank, run, held_by
)
SELECT r.task_id, 'held', r.queue, r.priority, r.upstream, r.function, r.tenant, r.rank, r.run, 'after'
FROM /*schema*/ready AS r
WHERE r.task_id = ANY ($1::uuid[])
    AND r.run = 0

-- name: leave_ready
-- 1 ids: array of uuid
DELETE FROM /*schema*/ready
WHERE task_id = ANY ($1::uuid[])
    AND run = 0
