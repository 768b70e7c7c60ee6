-- joined: store one task on a connection that the caller brings, inside the transaction that is open there. The
-- parameters are those of enqueue's `one`, as each family of drivers writes them; the casts are for drivers that
-- send everything as text.
-- moves: new -> ready, new -> scheduled

-- name: numbered
-- asyncpg.
SELECT holder::text, answer
FROM /*schema*/enqueue_1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21
)

-- name: format
-- The Python DB-API: psycopg, Django.
SELECT holder::text, answer
FROM /*schema*/enqueue_1(
    %s::uuid, %s::double precision, %s::uuid, %s::text, %s::text, %s::smallint, %s::text, %s::text, %s::text,
    %s::bytea, %s::bytea, %s::text, %s::double precision, %s::text, %s::double precision,
    %s::double precision, %s::double precision, %s::double precision, %s::double precision, %s::integer,
    %s::jsonb
)

-- name: named
-- SQLAlchemy, whatever driver is below it.
SELECT CAST(holder AS text), answer
FROM /*schema*/enqueue_1(
    CAST(:p1 AS uuid), CAST(:p2 AS double precision), CAST(:p3 AS uuid), CAST(:p4 AS text), CAST(:p5 AS text),
    CAST(:p6 AS smallint), CAST(:p7 AS text), CAST(:p8 AS text), CAST(:p9 AS text), CAST(:p10 AS bytea),
    CAST(:p11 AS bytea), CAST(:p12 AS text), CAST(:p13 AS double precision), CAST(:p14 AS text),
    CAST(:p15 AS double precision), CAST(:p16 AS double precision), CAST(:p17 AS double precision),
    CAST(:p18 AS double precision), CAST(:p19 AS double precision), CAST(:p20 AS integer), CAST(:p21 AS jsonb)
)
