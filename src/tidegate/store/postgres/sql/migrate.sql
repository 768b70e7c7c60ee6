-- migrate: bring the schema up to date, one transaction per migration.

-- name: lock
-- One upgrade of a schema at a time; the lock is released with the transaction. The number is specific to Tidegate.
-- 1 schema
SELECT pg_advisory_xact_lock(7283114, hashtext($1))

-- name: encoding
SELECT current_setting('server_encoding')

-- name: is_there
-- NULL if no migration was ever applied.
-- 1 schema
SELECT to_regclass(format('%I.migration', $1::text))

-- name: has_schema
-- 1 schema
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)

-- name: applied
SELECT number, name
FROM /*schema*/migration
ORDER BY number

-- name: since
-- The lowest migration a process must know to work with this schema.
SELECT since
FROM /*schema*/compatible

-- name: patience
-- How long to wait for a table that old workers use. After that the migration is retried, so that statements queued
-- behind it are not blocked for longer.
SET LOCAL lock_timeout = '1s'

-- name: holders
-- Transactions open for over a second that have locks on the tables, oldest first, as text. The migrator may not see
-- more about sessions of other roles.
-- 1 schema
SELECT string_agg(format('process %s (%s, role %s)', pid, coalesce(nullif(program, ''), 'unnamed'), role), ', ')
FROM (
    SELECT a.pid, a.application_name AS program, a.usename AS role
    FROM pg_stat_activity AS a
    WHERE a.pid <> pg_backend_pid()
        AND coalesce(a.xact_start < clock_timestamp() - interval '1 second', true)
        AND EXISTS (
            SELECT 1
            FROM pg_locks AS l
            INNER JOIN pg_class AS c ON c.oid = l.relation
            INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE l.pid = a.pid
                AND l.granted
                AND n.nspname = $1
        )
    ORDER BY a.xact_start
    LIMIT 5
) AS oldest

-- name: begin
CREATE TABLE /*schema*/migration (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at double precision NOT NULL
);

-- name: note
-- 1 number, 2 name
INSERT INTO /*schema*/migration (number, name, applied_at)
VALUES ($1, $2, date_part('epoch', clock_timestamp()))
