-- roles: create the four roles of a schema and grant their rights. An administrator runs it once, before the first
-- upgrade. Safe to repeat. `:schema` is replaced by the schema's name.
--
-- The migrator owns the tables; only `tidegate db upgrade` uses it. Workers and processes that enqueue log in as the
-- worker: this role reads and writes rows, but cannot change tables. The reader only reads. The enqueuer may only
-- execute the function `enqueue`: for programs in other languages. If a role of your own enqueues from Python within
-- its transactions, make it a member of the worker role; if it only calls `enqueue`, of the enqueuer role.

-- name: roles
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[':schema_migrator', ':schema_worker', ':schema_reader', ':schema_enqueuer'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', role_name);
        END IF;
    END LOOP;
END
$$;

CREATE SCHEMA IF NOT EXISTS ":schema" AUTHORIZATION ":schema_migrator";

-- This is needed if the schema existed before, like `public`, or if functions are not granted to PUBLIC by default.
GRANT USAGE, CREATE ON SCHEMA ":schema" TO ":schema_migrator";
GRANT USAGE ON SCHEMA ":schema" TO ":schema_worker", ":schema_reader", ":schema_enqueuer";
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ":schema" TO ":schema_migrator", ":schema_worker", ":schema_reader";
GRANT SELECT ON ALL TABLES IN SCHEMA ":schema" TO ":schema_worker", ":schema_reader";
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ":schema" TO ":schema_worker";
ALTER DEFAULT PRIVILEGES FOR ROLE ":schema_migrator" IN SCHEMA ":schema"
    GRANT SELECT ON TABLES TO ":schema_worker", ":schema_reader";
ALTER DEFAULT PRIVILEGES FOR ROLE ":schema_migrator" IN SCHEMA ":schema"
    GRANT INSERT, UPDATE, DELETE ON TABLES TO ":schema_worker";
ALTER DEFAULT PRIVILEGES FOR ROLE ":schema_migrator" IN SCHEMA ":schema"
    GRANT EXECUTE ON FUNCTIONS TO ":schema_worker", ":schema_reader";

-- `enqueue` runs with the rights of its owner, so a reader must not execute it. Before the first upgrade the function
-- does not exist; the migration that creates it also grants it.
DO $$
DECLARE
    found regprocedure;
BEGIN
    FOR found IN
        SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = '":schema"'::regnamespace AND p.proname = 'enqueue'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %I', found, ':schema_reader');
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', found, ':schema_enqueuer');
    END LOOP;
END
$$;

-- A second safeguard behind Tidegate's own limits. Settings of the role also apply behind a pooler, where settings of
-- a session are lost.
ALTER ROLE ":schema_worker" SET statement_timeout = '15min';
ALTER ROLE ":schema_worker" SET lock_timeout = '30s';
ALTER ROLE ":schema_worker" SET idle_in_transaction_session_timeout = '15s';
ALTER ROLE ":schema_worker" SET default_transaction_isolation = 'read committed';
ALTER ROLE ":schema_worker" SET jit = off;
ALTER ROLE ":schema_enqueuer" SET statement_timeout = '60s';
ALTER ROLE ":schema_enqueuer" SET lock_timeout = '30s';
ALTER ROLE ":schema_reader" SET default_transaction_read_only = on;
ALTER ROLE ":schema_reader" SET statement_timeout = '60s';
