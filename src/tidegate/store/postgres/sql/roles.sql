-- roles: the three roles that work on a schema, and their rights; for an administrator to run, once, before the
-- first upgrade. Safe to repeat. `:schema` is a mark: the schema's name is put in there.
--
-- The migrator owns the tables and is used by `tidegate db upgrade` alone. The worker is what workers and the
-- processes that enqueue log in as: it reads and writes rows, and can change no table. The reader only reads. A
-- role of your own that enqueues within its transactions is made a member of the worker's.

-- name: roles
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[':schema_migrator', ':schema_worker', ':schema_reader'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', role_name);
        END IF;
    END LOOP;
END
$$;

CREATE SCHEMA IF NOT EXISTS ":schema" AUTHORIZATION ":schema_migrator";

-- Also where the schema was there before, as `public` is, or functions are not everybody's by default.
GRANT USAGE, CREATE ON SCHEMA ":schema" TO ":schema_migrator";
GRANT USAGE ON SCHEMA ":schema" TO ":schema_worker", ":schema_reader";
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ":schema" TO ":schema_migrator", ":schema_worker", ":schema_reader";
GRANT SELECT ON ALL TABLES IN SCHEMA ":schema" TO ":schema_worker", ":schema_reader";
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ":schema" TO ":schema_worker";
ALTER DEFAULT PRIVILEGES FOR ROLE ":schema_migrator" IN SCHEMA ":schema"
    GRANT SELECT ON TABLES TO ":schema_worker", ":schema_reader";
ALTER DEFAULT PRIVILEGES FOR ROLE ":schema_migrator" IN SCHEMA ":schema"
    GRANT INSERT, UPDATE, DELETE ON TABLES TO ":schema_worker";
ALTER DEFAULT PRIVILEGES FOR ROLE ":schema_migrator" IN SCHEMA ":schema"
    GRANT EXECUTE ON FUNCTIONS TO ":schema_worker", ":schema_reader";

-- The second net under the limits that Tidegate keeps itself. As settings of the role they hold behind a pooler
-- too, where a session's own are lost.
ALTER ROLE ":schema_worker" SET statement_timeout = '15min';
ALTER ROLE ":schema_worker" SET lock_timeout = '30s';
ALTER ROLE ":schema_worker" SET idle_in_transaction_session_timeout = '15s';
ALTER ROLE ":schema_worker" SET default_transaction_isolation = 'read committed';
ALTER ROLE ":schema_worker" SET jit = off;
ALTER ROLE ":schema_reader" SET default_transaction_read_only = on;
ALTER ROLE ":schema_reader" SET statement_timeout = '60s';
