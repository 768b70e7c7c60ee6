-- 008: enqueue function: enqueue from any program that speaks SQL, in its own transaction: Rails, Go, a trigger.
-- Locks: none that matter, because it only adds functions. Older code works with this schema.
--
-- `enqueue` runs with the rights of its owner (SECURITY DEFINER), so a role that may only execute it can enqueue and do
-- nothing else. So nobody may execute it unless it was granted: the role :schema_enqueuer and the worker may, if they
-- exist. Its search_path is fixed, since it runs with more rights than its caller.

-- The id of a new task: a UUID of version 7, which sorts by time.
CREATE FUNCTION /*schema*/new_id_1() RETURNS uuid
LANGUAGE sql VOLATILE
AS $$
    SELECT encode(
        set_bit(
            set_bit(
                overlay(
                    uuid_send(gen_random_uuid())
                    PLACING substring(int8send(floor(date_part('epoch', clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6
                ),
                52, 1
            ),
            53, 1
        ),
        'hex'
    )::uuid
$$;

-- Enqueue one task of a declared task function in the caller's transaction; return its id, or the id of the task that
-- has the key. Arguments are checked against the function's parameters when a worker claims the task: a task whose
-- arguments do not fit is dead, with the reason invalid_request.
CREATE FUNCTION /*schema*/enqueue(
    function text,                      -- full name: app:summarize
    args jsonb DEFAULT '{}',            -- object: arguments by name; array: by position
    key text DEFAULT NULL,              -- idempotency key, kept for 7 days
    queue text DEFAULT NULL,            -- NULL: the function's own
    delay interval DEFAULT NULL,        -- until it is due
    priority text DEFAULT NULL,         -- interactive, normal, bulk; NULL: the function's own
    run_at timestamptz DEFAULT NULL,    -- when it is due; overrides the delay
    tenant text DEFAULT '',
    labels jsonb DEFAULT NULL,          -- object of texts
    unknown_ok boolean DEFAULT false    -- whether to accept a function that no application has declared here yet
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    declared jsonb;
    payload bytea;
    priority_number smallint;
    delay_seconds double precision := coalesce(date_part('epoch', delay), 0);
    run_at_seconds double precision := date_part('epoch', run_at);
    answer text;
    holder uuid;
BEGIN
    SELECT m.body::jsonb -> 'functions' -> function INTO declared
    FROM /*schema*/manifest AS m
    WHERE m.body::jsonb -> 'functions' ? function
    ORDER BY m.saved_at DESC
    LIMIT 1;
    IF function IS NULL OR function = '' OR (declared IS NULL AND NOT coalesce(unknown_ok, false)) THEN
        RAISE EXCEPTION 'no application that ran here declares the task function %', coalesce(quote_literal(function), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Write its full name, as in app:summarize. Start a worker of its application once, or pass unknown_ok => true.';
    END IF;
    queue := coalesce(queue, declared ->> 'queue', 'default');
    IF length(queue) NOT BETWEEN 1 AND 128 OR btrim(queue) <> queue THEN
        RAISE EXCEPTION 'invalid queue name: %', quote_literal(queue)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use 1 to 128 characters, without blanks at the ends.';
    END IF;
    priority := coalesce(priority, declared ->> 'priority', 'normal');
    priority_number := CASE priority WHEN 'interactive' THEN 0 WHEN 'normal' THEN 1 WHEN 'bulk' THEN 2 END;
    IF priority_number IS NULL THEN
        RAISE EXCEPTION 'invalid priority: %', quote_literal(priority)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use interactive, normal or bulk.';
    END IF;
    payload := convert_to(
        CASE jsonb_typeof(args)
            WHEN 'object' THEN jsonb_build_object('a', '[]'::jsonb, 'k', args)::text
            WHEN 'array' THEN jsonb_build_object('a', args, 'k', '{}'::jsonb)::text
        END,
        'UTF8'
    );
    IF payload IS NULL THEN
        RAISE EXCEPTION 'args must be a JSON object (arguments by name) or an array (by position), not %', coalesce(args::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF length(payload) > 1048576 THEN
        RAISE EXCEPTION 'args are too large: % bytes of 1048576', length(payload)
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Store large data elsewhere and pass where it is.';
    END IF;
    IF length(key) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'invalid key: it has % characters', length(key)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use 1 to 255 characters.';
    END IF;
    IF tenant IS NULL OR length(tenant) > 128 THEN
        RAISE EXCEPTION 'invalid tenant' USING ERRCODE = 'invalid_parameter_value', HINT = 'Use up to 128 characters.';
    END IF;
    IF labels IS NOT NULL AND (
        jsonb_typeof(labels) <> 'object'
        OR EXISTS (SELECT 1 FROM jsonb_each(labels) AS l WHERE jsonb_typeof(l.value) <> 'string')
    ) THEN
        RAISE EXCEPTION 'labels must be a JSON object of texts' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT isfinite(run_at) OR run_at_seconds > 253402300799 OR delay_seconds > 3153600000 THEN
        RAISE EXCEPTION 'it would never be due' USING ERRCODE = 'datetime_field_overflow';
    END IF;
    SELECT e.holder, e.answer INTO holder, answer
    FROM /*schema*/enqueue_1(
        NULL, NULL, /*schema*/new_id_1(), function, queue, priority_number,
        coalesce(declared ->> 'upstream', ''), tenant, 'json/1', payload,
        CASE WHEN key IS NOT NULL THEN sha256(convert_to(function, 'UTF8') || '\x00'::bytea || payload) ELSE '' END,
        key, 604800, NULL, NULL, delay_seconds, run_at_seconds, (declared ->> 'deadline')::double precision, NULL, NULL,
        nullif(labels, '{}'::jsonb), NULL, NULL
    ) AS e;
    IF answer = 'stored' AND declared ->> 'on_final' IS NOT NULL THEN
        UPDATE /*schema*/task AS t SET on_final = declared ->> 'on_final' WHERE t.id = holder;
    END IF;
    IF answer = 'conflict' THEN
        RAISE EXCEPTION 'the key % belongs to task %, which has another function or other arguments', quote_literal(key), holder
            USING ERRCODE = 'unique_violation', HINT = 'Use another key, or the same function and arguments.';
    END IF;
    RETURN holder;
END
$$;

REVOKE ALL ON FUNCTION /*schema*/enqueue(text, jsonb, text, text, interval, text, timestamptz, text, jsonb, boolean) FROM PUBLIC;

DO $$
DECLARE
    this CONSTANT regprocedure :=
        '/*schema*/enqueue(text, jsonb, text, text, interval, text, timestamptz, text, jsonb, boolean)'::regprocedure;
    schema_name CONSTANT text := (
        SELECT n.nspname FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE p.oid = this
    );
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = schema_name || '_reader') THEN
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %I', this, schema_name || '_reader');
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = schema_name || '_enqueuer') THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', this, schema_name || '_enqueuer');
    END IF;
END
$$;
