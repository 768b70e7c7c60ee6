-- facts: read facts about a server for `tidegate doctor`.

-- name: facts
-- 1 schema
SELECT
    current_setting('server_version'),
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
    current_setting('synchronous_commit'),
    current_setting('autovacuum')::boolean,
    current_user::text,
    has_schema_privilege(current_user, n.oid, 'CREATE'),
    pg_is_in_recovery(),
    (
        SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start))::double precision
        FROM pg_stat_activity AS a
        WHERE a.backend_xmin IS NOT NULL
            AND a.pid <> pg_backend_pid()
            AND a.backend_type = 'client backend'
    ),
    (SELECT count(*) FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '5 minutes'),
    (SELECT count(*) FROM pg_replication_slots WHERE NOT active)
FROM pg_namespace AS n
WHERE n.nspname = $1
