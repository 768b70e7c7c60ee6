-- migrate: bring the schema up to date, one migration a transaction.

-- name: lock
-- One upgrade of a schema at a time; released with the transaction. The number is only ours.
-- 1 schema
SELECT pg_advisory_xact_lock(7283114, hashtext($1))

-- name: encoding
SELECT current_setting('server_encoding')

-- name: is_there
-- NULL if nothing was ever applied.
-- 1 schema
SELECT to_regclass(format('%I.migration', $1::text))

-- name: has_schema
-- 1 schema
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)

-- name: applied
SELECT number
FROM /*schema*/migration
ORDER BY number

-- name: patience
-- A table that old workers use is waited for this long; then the whole is tried again, so that what queues up
-- behind us is never held for longer.
SET LOCAL lock_timeout = '3s'

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
