-- get_sizes: the size of each table of the schema and its estimated number of rows. Nothing is counted: autovacuum
-- keeps the planner's estimate up to date; sizes are the sizes of files.

-- name: tables
-- 1 schema
SELECT
    c.relname,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples ELSE coalesce(s.n_live_tup, 0) END::bigint AS table_rows,
    pg_total_relation_size(c.oid) AS bytes
FROM pg_class AS c
LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    AND c.relkind = 'r'
ORDER BY bytes DESC, c.relname
