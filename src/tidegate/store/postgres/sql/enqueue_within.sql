-- enqueue_within: store tasks on the caller's connection, inside its open transaction. The parameters are written in
-- the style of each family of drivers. The casts are for drivers that send everything as text.
--
-- `one_…` takes the parameters of `one_task` in `enqueue`. `given_…`, which `many` continues, takes 1 the identity, 2 a
-- JSON array with an object for each task: the parameters of `one_task` from its third on by name, bytes in base64. JSON is
-- used because each driver writes arrays differently. Results come in the given order, in which names are taken; all
-- tasks get the same time. If one result is `conflict`, the other tasks are stored, unless the statement runs between
-- `savepoint` and `undo`.
-- moves: new -> ready, new -> scheduled

-- name: one_numbered
-- asyncpg.
SELECT holder::text, answer
FROM /*schema*/enqueue_1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21::text::jsonb,
    $22, $23
)

-- name: one_format
-- The Python DB-API: psycopg, Django.
SELECT holder::text, answer
FROM /*schema*/enqueue_1(
    %s::uuid, %s::double precision, %s::uuid, %s::text, %s::text, %s::smallint, %s::text, %s::text, %s::text,
    %s::bytea, %s::bytea, %s::text, %s::double precision, %s::text, %s::double precision,
    %s::double precision, %s::double precision, %s::double precision, %s::double precision, %s::integer,
    %s::jsonb, %s::double precision, %s::double precision
)

-- name: one_named
-- SQLAlchemy, with any driver.
SELECT CAST(holder AS text), answer
FROM /*schema*/enqueue_1(
    CAST(:p1 AS uuid), CAST(:p2 AS double precision), CAST(:p3 AS uuid), CAST(:p4 AS text), CAST(:p5 AS text),
    CAST(:p6 AS smallint), CAST(:p7 AS text), CAST(:p8 AS text), CAST(:p9 AS text), CAST(:p10 AS bytea),
    CAST(:p11 AS bytea), CAST(:p12 AS text), CAST(:p13 AS double precision), CAST(:p14 AS text),
    CAST(:p15 AS double precision), CAST(:p16 AS double precision), CAST(:p17 AS double precision),
    CAST(:p18 AS double precision), CAST(:p19 AS double precision), CAST(:p20 AS integer), CAST(:p21 AS jsonb),
    CAST(:p22 AS double precision), CAST(:p23 AS double precision)
)

-- name: given_numbered
WITH given AS (SELECT $1::uuid AS expected_schema, $2::text::json AS tasks)

-- name: given_format
WITH given AS (SELECT %s::uuid AS expected_schema, %s::text::json AS tasks)

-- name: given_named
WITH given AS (SELECT CAST(:p1 AS uuid) AS expected_schema, CAST(CAST(:p2 AS text) AS json) AS tasks)

-- name: many
, clock AS MATERIALIZED (
    SELECT /*schema*/moment(NULL) AS now
)
SELECT CAST(a.holder AS text), a.answer
FROM given
CROSS JOIN clock
CROSS JOIN LATERAL ROWS FROM (
    json_to_recordset(given.tasks) AS (
        id uuid, function text, queue text, priority smallint, upstream text, tenant text, codec_tag text,
        args text, fingerprint text, key_name text, key_seconds double precision, unique_name text,
        unique_seconds double precision, delay_seconds double precision, run_at double precision,
        deadline_seconds double precision, timeout_seconds double precision, max_attempts integer, labels jsonb,
        total_timeout_seconds double precision, deadline_at double precision
    )
) WITH ORDINALITY AS g (
    id, function, queue, priority, upstream, tenant, codec_tag, args, fingerprint, key_name, key_seconds,
    unique_name, unique_seconds, delay_seconds, run_at, deadline_seconds, timeout_seconds, max_attempts, labels,
    total_timeout_seconds, deadline_at, position
)
CROSS JOIN LATERAL /*schema*/enqueue_1(
    given.expected_schema, clock.now, g.id, g.function, g.queue, g.priority, g.upstream, g.tenant, g.codec_tag,
    decode(g.args, 'base64'), decode(g.fingerprint, 'base64'), g.key_name, g.key_seconds, g.unique_name,
    g.unique_seconds, g.delay_seconds, g.run_at, g.deadline_seconds, g.timeout_seconds, g.max_attempts, g.labels,
    g.total_timeout_seconds, g.deadline_at
) AS a
ORDER BY g.position

-- name: savepoint
SAVEPOINT tidegate_many

-- name: undo
ROLLBACK TO SAVEPOINT tidegate_many

-- name: release
RELEASE SAVEPOINT tidegate_many
