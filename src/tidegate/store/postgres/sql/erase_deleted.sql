-- erase_deleted: rewrite the tables, so that no deleted data is left in their files. A plain VACUUM frees the space of
-- deleted rows and leaves their bytes there until new rows are written over them.

-- name: tables
-- The tables of the schema, and whether this role may rewrite them.
-- 1 schema
SELECT c.relname, pg_has_role(c.relowner, 'USAGE')
FROM pg_class AS c
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    AND c.relkind = 'r'
ORDER BY c.relname

-- name: rewrite
-- The code writes the name of the table in place of `one_table`.
VACUUM (FULL, ANALYZE) /*schema*/one_table

-- name: may_clean_statistics
-- Whether this role may delete column statistics, which quote common values. The statistics are one table for the whole
-- database.
SELECT pg_has_role(datdba, 'USAGE')
FROM pg_database
WHERE datname = current_database()

-- name: statistics
VACUUM FULL pg_catalog.pg_statistic
