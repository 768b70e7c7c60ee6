--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: tidegate; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA tidegate;


--
-- Name: enqueue_1(uuid, double precision, uuid, text, text, smallint, text, text, text, bytea, bytea, text, double precision, text, double precision, double precision, double precision, double precision, double precision, integer, jsonb); Type: FUNCTION; Schema: tidegate; Owner: -
--

CREATE FUNCTION tidegate.enqueue_1(home uuid, at double precision, id uuid, function text, queue text, priority smallint, upstream text, tenant text, codec_tag text, args bytea, fingerprint bytea, key_name text, key_seconds double precision, unique_name text, unique_seconds double precision, delay_seconds double precision, run_at double precision, deadline_seconds double precision, timeout_seconds double precision, max_attempts integer, labels jsonb, OUT holder uuid, OUT answer text) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_variable
DECLARE
    now CONSTANT double precision := coalesce(at, date_part('epoch', clock_timestamp()));
    due_at CONSTANT double precision := coalesce(run_at, now + delay_seconds);
    is_conflict boolean;
BEGIN
    IF home <> "tidegate".identity() THEN
        answer := 'elsewhere';
        RETURN;
    END IF;
    IF key_name IS NOT NULL OR unique_name IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM "tidegate".task AS t WHERE t.id = id) AND NOT "tidegate".unsee_1(id) THEN
            holder := id;
            answer := 'held';
            RETURN;
        END IF;
        SELECT s.holder, s.conflict INTO holder, is_conflict
        FROM "tidegate".settle_1(
            now, id, tenant, fingerprint, key_name, key_seconds, unique_name, unique_seconds
        ) AS s;
        IF holder IS NOT NULL THEN
            answer := CASE WHEN is_conflict THEN 'conflict' ELSE 'held' END;
            RETURN;
        END IF;
    END IF;
    holder := id;
    answer := 'stored';
    LOOP
        WITH new AS (
            INSERT INTO "tidegate".task (
                id, function, queue, priority, upstream, tenant, idempotency_key, unique_name, unique_until_final,
                timeout_seconds, max_attempts, deadline_seconds, deadline_at, labels, enqueued_at
            )
            VALUES (
                id, function, queue, priority, upstream, tenant, key_name, unique_name,
                unique_name IS NOT NULL AND unique_seconds IS NULL,
                timeout_seconds, max_attempts, deadline_seconds, now + deadline_seconds, labels, now
            )
            ON CONFLICT ON CONSTRAINT task_pkey DO NOTHING
            RETURNING 1
        ),
        carried AS (
            INSERT INTO "tidegate".payload (task_id, codec_tag, args)
            SELECT id, codec_tag, args
            FROM new
        ),
        at_once AS (
            INSERT INTO "tidegate".ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
            SELECT id, queue, priority, upstream, function, tenant, now, now, 0
            FROM new
            WHERE due_at <= now
        ),
        later AS (
            INSERT INTO "tidegate".waiting (
                task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run
            )
            SELECT id, 'scheduled', due_at, queue, priority, upstream, function, tenant, due_at, 0
            FROM new
            WHERE due_at > now
        )
        INSERT INTO "tidegate".tally (minute, queue, function, upstream, tenant, enqueued)
        SELECT floor(now / 60), queue, function, upstream, tenant, 1
        FROM new;
        EXIT WHEN FOUND;
        IF NOT "tidegate".unsee_1(id) THEN
            answer := 'held';
            RETURN;
        END IF;
    END LOOP;
END
$$;


--
-- Name: identity(); Type: FUNCTION; Schema: tidegate; Owner: -
--

CREATE FUNCTION tidegate.identity() RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT '18885ed2-2ea8-4c50-89e8-2d52864d99ed'::uuid$$;


--
-- Name: moment(double precision); Type: FUNCTION; Schema: tidegate; Owner: -
--

CREATE FUNCTION tidegate.moment(at double precision) RETURNS double precision
    LANGUAGE sql PARALLEL SAFE
    AS $$ SELECT coalesce(at, date_part('epoch', clock_timestamp())) $$;


--
-- Name: settle_1(double precision, uuid, text, bytea, text, double precision, text, double precision); Type: FUNCTION; Schema: tidegate; Owner: -
--

CREATE FUNCTION tidegate.settle_1(now double precision, id uuid, tenant text, fingerprint bytea, key_name text, key_seconds double precision, unique_name text, unique_seconds double precision, OUT holder uuid, OUT conflict boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_variable
DECLARE
    kind text := CASE WHEN key_name IS NULL THEN 'unique' ELSE 'key' END;
    name text := coalesce(key_name, unique_name);
    held_as bytea;
BEGIN
    conflict := false;
    WHILE name IS NOT NULL LOOP
        INSERT INTO "tidegate".key AS k (kind, tenant, name, task_id, fingerprint, expires_at)
        VALUES (
            kind, tenant, name, id, fingerprint, now + CASE kind WHEN 'key' THEN key_seconds ELSE unique_seconds END
        )
        ON CONFLICT ON CONSTRAINT key_pkey DO NOTHING;
        IF NOT FOUND THEN
            UPDATE "tidegate".key AS k
            SET
                task_id = id,
                fingerprint = fingerprint,
                expires_at = now + CASE kind WHEN 'key' THEN key_seconds ELSE unique_seconds END
            WHERE k.kind = kind
                AND k.tenant = tenant
                AND k.name = name
                AND (k.task_id = id OR k.expires_at <= now);
        END IF;
        IF FOUND THEN
            EXIT WHEN kind = 'unique';
            kind := 'unique';
            name := unique_name;
            CONTINUE;
        END IF;
        SELECT k.task_id, k.fingerprint INTO holder, held_as
        FROM "tidegate".key AS k
        WHERE k.kind = kind
            AND k.tenant = tenant
            AND k.name = name;
        CONTINUE WHEN NOT FOUND;
        IF kind = 'key' THEN
            conflict := held_as <> fingerprint;
            RETURN;
        END IF;
        DELETE FROM "tidegate".key AS k
        WHERE k.kind = kind
            AND k.tenant = tenant
            AND k.name = name
            AND k.task_id = holder
            AND NOT EXISTS (SELECT 1 FROM "tidegate".task AS t WHERE t.id = holder);
        IF NOT FOUND THEN
            DELETE FROM "tidegate".key AS k
            WHERE k.kind = 'key'
                AND k.tenant = tenant
                AND k.name = key_name
                AND k.task_id = id;
            RETURN;
        END IF;
        holder := NULL;
    END LOOP;
END
$$;


--
-- Name: unsee_1(uuid); Type: FUNCTION; Schema: tidegate; Owner: -
--

CREATE FUNCTION tidegate.unsee_1(id uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_variable
BEGIN
    DELETE FROM "tidegate".staged AS s
    USING "tidegate".stage AS c
    WHERE s.task_id = id
        AND c.id = s.batch_id
        AND c.committed_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM "tidegate".payload AS p WHERE p.task_id = id;
    DELETE FROM "tidegate".task AS t WHERE t.id = id;
    RETURN true;
END
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: act; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.act (
    task_id uuid NOT NULL,
    at double precision NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: archive; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.archive (
    task_id uuid NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    run integer NOT NULL,
    worker_id text COLLATE pg_catalog."C",
    ready_at double precision,
    started_at double precision,
    finished_at double precision NOT NULL,
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: attempt; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.attempt (
    task_id uuid NOT NULL,
    run integer NOT NULL,
    worker_id text NOT NULL COLLATE pg_catalog."C",
    started_at double precision NOT NULL,
    ended_at double precision NOT NULL,
    outcome text NOT NULL COLLATE pg_catalog."C",
    charge text NOT NULL COLLATE pg_catalog."C",
    verdict text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    error_class text NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL COLLATE pg_catalog."C",
    traceback text NOT NULL COLLATE pg_catalog."C",
    status integer,
    code text NOT NULL COLLATE pg_catalog."C",
    request_id text NOT NULL COLLATE pg_catalog."C",
    evidence text NOT NULL COLLATE pg_catalog."C",
    next_run_at double precision,
    why text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT attempt_outcome_check CHECK ((outcome = ANY (ARRAY['retrying'::text, 'released'::text, 'dead'::text, 'cancelled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: audit; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.audit (
    id uuid NOT NULL,
    at double precision NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    tenant text COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    answer text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: chunk; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.chunk (
    task_id uuid NOT NULL,
    sequence bigint NOT NULL,
    run integer NOT NULL,
    at double precision NOT NULL,
    data bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: compatible; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.compatible (
    one boolean DEFAULT true NOT NULL,
    since integer NOT NULL,
    CONSTRAINT compatible_one_check CHECK (one)
);


--
-- Name: dead; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.dead (
    task_id uuid NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    function text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    error_class text NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL COLLATE pg_catalog."C",
    run integer NOT NULL,
    worker_id text COLLATE pg_catalog."C",
    started_at double precision,
    failed_at double precision NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: gate; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.gate (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    limits text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    buckets text NOT NULL COLLATE pg_catalog."C",
    changed_at double precision NOT NULL,
    CONSTRAINT gate_kind_check CHECK ((kind = ANY (ARRAY['upstream'::text, 'function'::text, 'system'::text])))
)
WITH (fillfactor='30', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);


--
-- Name: key; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.key (
    kind text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    task_id uuid NOT NULL,
    fingerprint bytea NOT NULL,
    expires_at double precision,
    CONSTRAINT key_kind_check CHECK ((kind = ANY (ARRAY['key'::text, 'unique'::text])))
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.02');


--
-- Name: manifest; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.manifest (
    app text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C",
    saved_at double precision NOT NULL
);


--
-- Name: migration; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.migration (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at double precision NOT NULL
);


--
-- Name: payload; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.payload (
    task_id uuid NOT NULL,
    codec_tag text NOT NULL COLLATE pg_catalog."C",
    args bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: permit; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.permit (
    id text NOT NULL COLLATE pg_catalog."C",
    upstream text NOT NULL COLLATE pg_catalog."C",
    expires_at double precision NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);


--
-- Name: progress; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.progress (
    task_id uuid NOT NULL,
    run integer NOT NULL,
    at double precision NOT NULL,
    done double precision NOT NULL,
    total double precision,
    note text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02');


--
-- Name: ready; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.ready (
    task_id uuid NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    upstream text NOT NULL COLLATE pg_catalog."C",
    function text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    rank double precision NOT NULL,
    ready_at double precision NOT NULL,
    run integer NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_threshold='-1', vacuum_index_cleanup='on', vacuum_truncate=off);


--
-- Name: result; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.result (
    task_id uuid NOT NULL,
    codec_tag text NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: rollup; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.rollup (
    minute integer NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    function text NOT NULL COLLATE pg_catalog."C",
    upstream text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    enqueued bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    dead bigint DEFAULT 0 NOT NULL,
    cancelled bigint DEFAULT 0 NOT NULL,
    retried bigint DEFAULT 0 NOT NULL,
    released bigint DEFAULT 0 NOT NULL,
    run_seconds double precision DEFAULT 0 NOT NULL,
    wait_seconds double precision DEFAULT 0 NOT NULL,
    first_final_at double precision
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02');


--
-- Name: running; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.running (
    task_id uuid NOT NULL,
    run integer NOT NULL,
    worker_id text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    upstream text NOT NULL COLLATE pg_catalog."C",
    function text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    ready_at double precision NOT NULL,
    started_at double precision NOT NULL,
    crash_limit integer NOT NULL,
    crash_base_seconds double precision NOT NULL,
    crash_max_seconds double precision NOT NULL,
    unique_name text COLLATE pg_catalog."C",
    cancel_requested_at double precision,
    cancel_forced boolean DEFAULT false NOT NULL,
    probe boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_threshold='-1', vacuum_index_cleanup='on', vacuum_truncate=off);


--
-- Name: stage; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.stage (
    id text NOT NULL COLLATE pg_catalog."C",
    created_at double precision NOT NULL,
    committed_at double precision,
    refused_key text COLLATE pg_catalog."C",
    refused_for uuid
);


--
-- Name: staged; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.staged (
    batch_id text NOT NULL COLLATE pg_catalog."C",
    place integer NOT NULL,
    task_id uuid NOT NULL,
    due_at double precision,
    fingerprint bytea,
    key_seconds double precision,
    unique_seconds double precision,
    holder uuid
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);


--
-- Name: stream; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.stream (
    task_id uuid NOT NULL,
    run integer NOT NULL,
    base bigint NOT NULL,
    last bigint NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');


--
-- Name: tally; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.tally (
    minute integer NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    function text NOT NULL COLLATE pg_catalog."C",
    upstream text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    enqueued bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    dead bigint DEFAULT 0 NOT NULL,
    cancelled bigint DEFAULT 0 NOT NULL,
    retried bigint DEFAULT 0 NOT NULL,
    released bigint DEFAULT 0 NOT NULL,
    run_seconds double precision DEFAULT 0 NOT NULL,
    wait_seconds double precision DEFAULT 0 NOT NULL,
    first_final_at double precision
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_vacuum_insert_threshold='-1', vacuum_truncate=off);


--
-- Name: task; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.task (
    id uuid NOT NULL,
    function text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    upstream text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    tenant text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    concurrency_key text COLLATE pg_catalog."C",
    map_id uuid,
    idempotency_key text COLLATE pg_catalog."C",
    unique_name text COLLATE pg_catalog."C",
    unique_until_final boolean DEFAULT false NOT NULL,
    timeout_seconds double precision,
    max_attempts integer,
    deadline_seconds double precision,
    deadline_at double precision,
    labels jsonb,
    enqueued_at double precision NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    parks integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    releases integer DEFAULT 0 NOT NULL,
    rule_attempts text,
    redrives integer DEFAULT 0 NOT NULL,
    redriven_at double precision,
    first_started_at double precision,
    parked_at double precision,
    paused_seconds double precision DEFAULT 0 NOT NULL,
    last_reason text COLLATE pg_catalog."C",
    last_message text COLLATE pg_catalog."C",
    CONSTRAINT task_priority_check CHECK (((priority >= 0) AND (priority <= 2)))
)
WITH (autovacuum_vacuum_scale_factor='0.02');


--
-- Name: token; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.token (
    id text NOT NULL COLLATE pg_catalog."C",
    digest bytea NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    tenant text COLLATE pg_catalog."C",
    created_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision
);


--
-- Name: waiting; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.waiting (
    task_id uuid NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    due_at double precision,
    queue text NOT NULL COLLATE pg_catalog."C",
    priority smallint NOT NULL,
    upstream text NOT NULL COLLATE pg_catalog."C",
    function text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    rank double precision NOT NULL,
    run integer NOT NULL,
    why text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    spends smallint DEFAULT 0 NOT NULL,
    urgent smallint DEFAULT 0 NOT NULL,
    since_at double precision,
    floor_at double precision,
    held_by text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT waiting_state_check CHECK ((state = ANY (ARRAY['scheduled'::text, 'retrying'::text, 'held'::text, 'suspended'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);


--
-- Name: worker; Type: TABLE; Schema: tidegate; Owner: -
--

CREATE TABLE tidegate.worker (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL COLLATE pg_catalog."C",
    pid integer NOT NULL,
    queues text NOT NULL COLLATE pg_catalog."C",
    slots integer NOT NULL,
    version text NOT NULL COLLATE pg_catalog."C",
    started_at double precision NOT NULL,
    heartbeat_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    retired_at double precision,
    retired_why text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    lost boolean DEFAULT false NOT NULL,
    culprit_id uuid,
    culprit_run integer
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200', vacuum_truncate=off);


--
-- Data for Name: act; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: archive; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.archive VALUES ('01a22bb6-5540-77e6-b138-800f8bbd7377', 'succeeded', 1, 'd3e9b790-23b8-48a9-95fc-227fa2f9677d', 1796029699.904316, 1796029700.462577, 1796029700.502434);


--
-- Data for Name: attempt; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.attempt VALUES ('01a22bb6-5743-700d-be8e-431a4616b59a', 1, 'd3e9b790-23b8-48a9-95fc-227fa2f9677d', 1796029700.462577, 1796029700.509504, 'dead', 'attempt', 'unknown', 'unknown', 'ValueError', 'Bob', 'Traceback (most recent call last):
  File "src/tidegate/worker/engine/executor.py", line 195, in _perform
    value = await self._called(attempt, args, kwargs)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "shop.py", line 12, in fail
    raise ValueError(name)
ValueError: Bob
', NULL, '', '', 'nothing known of ValueError', NULL, 'all 1 attempts spent');


--
-- Data for Name: audit; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: chunk; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: compatible; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.compatible VALUES (true, 5);


--
-- Data for Name: dead; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.dead VALUES ('01a22bb6-5743-700d-be8e-431a4616b59a', 'default', 'shop:fail', '', 'unknown', 'ValueError', 'Bob', 1, 'd3e9b790-23b8-48a9-95fc-227fa2f9677d', 1796029700.462577, 1796029700.509504);


--
-- Data for Name: gate; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.gate VALUES ('system', '', '{"windows":[],"max_in_flight":null,"retries_per_minute":600.0,"retry_window_seconds":60.0,"slow_start_seconds":45.0,"failures_to_park":5}', '{"state":"flowing","by":null,"reason":"","message":"","since_at":1796029700.317792,"until_at":null,"probe_at":null,"failures":0,"refused_since_at":null,"opened_at":null,"goods":0,"reopened_at":null,"typical_seconds":1.0,"learned":[],"pace":{"goods_per_second":0.0,"counted_at":0.0,"counting_at":0.0,"per_second":null,"slowed_at":null}}', '{}', 1796029700.317792);


--
-- Data for Name: key; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.key VALUES ('key', '', 'later', '01a22bb6-5a06-7687-9cc4-ef12d379bc52', '\x06be43d751cf1d27a05d9db29b0af29ef574467999afe48396b75d7f23ebf650', 1796634500.621298);


--
-- Data for Name: manifest; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: migration; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.migration VALUES (1, '001_tasks', 1796029698.02955);
INSERT INTO tidegate.migration VALUES (2, '002_streams', 1796029698.082821);
INSERT INTO tidegate.migration VALUES (3, '003_upstreams', 1796029698.118798);
INSERT INTO tidegate.migration VALUES (4, '004_permits', 1796029698.135671);
INSERT INTO tidegate.migration VALUES (5, '005_compatible', 1796029698.141014);


--
-- Data for Name: payload; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.payload VALUES ('01a22bb6-5540-77e6-b138-800f8bbd7377', 'json/1', '\x7b2261223a5b5d2c226b223a7b226e616d65223a22416461227d7d');
INSERT INTO tidegate.payload VALUES ('01a22bb6-5743-700d-be8e-431a4616b59a', 'json/1', '\x7b2261223a5b5d2c226b223a7b226e616d65223a22426f62227d7d');
INSERT INTO tidegate.payload VALUES ('01a22bb6-5a05-748a-81c4-ab7a809d51f2', 'json/1', '\x7b2261223a5b5d2c226b223a7b226e616d65223a227761697473227d7d');
INSERT INTO tidegate.payload VALUES ('01a22bb6-5a06-7687-9cc4-ef12d379bc52', 'json/1', '\x7b2261223a5b5d2c226b223a7b226e616d65223a226c61746572227d7d');


--
-- Data for Name: permit; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: progress; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: ready; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.ready VALUES ('01a22bb6-5a05-748a-81c4-ab7a809d51f2', 'default', 1, '', 'shop:greet', '', 1796029700.614378, 1796029700.614378, 0);


--
-- Data for Name: result; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.result VALUES ('01a22bb6-5540-77e6-b138-800f8bbd7377', 'json/1', '\x2268656c6c6f2041646122');


--
-- Data for Name: rollup; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.rollup VALUES (29933828, 'default', 'shop:fail', '', '', 1, 0, 1, 0, 0, 0, 0.04692697525024414, 0.5547552108764648, 1796029700.509504);
INSERT INTO tidegate.rollup VALUES (29933828, 'default', 'shop:greet', '', '', 1, 1, 0, 0, 0, 0, 0.039856910705566406, 0.5582611560821533, 1796029700.502434);


--
-- Data for Name: running; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: stage; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: staged; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: stream; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: tally; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.tally VALUES (29933828, 'default', 'shop:greet', '', '', 1, 0, 0, 0, 0, 0, 0, 0, NULL);
INSERT INTO tidegate.tally VALUES (29933828, 'default', 'shop:greet', '', '', 1, 0, 0, 0, 0, 0, 0, 0, NULL);


--
-- Data for Name: task; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.task VALUES ('01a22bb6-5540-77e6-b138-800f8bbd7377', 'shop:greet', 'default', 1, '', '', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, 1796029699.904316, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL);
INSERT INTO tidegate.task VALUES ('01a22bb6-5743-700d-be8e-431a4616b59a', 'shop:fail', 'default', 1, '', '', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, 1796029699.907822, 1, 0, 0, 0, 0, NULL, 0, NULL, 1796029700.462577, NULL, 0, 'unknown', 'Bob');
INSERT INTO tidegate.task VALUES ('01a22bb6-5a05-748a-81c4-ab7a809d51f2', 'shop:greet', 'default', 1, '', '', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, 1796029700.614378, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL);
INSERT INTO tidegate.task VALUES ('01a22bb6-5a06-7687-9cc4-ef12d379bc52', 'shop:greet', 'default', 1, '', '', NULL, NULL, 'later', NULL, false, NULL, NULL, NULL, NULL, NULL, 1796029700.621298, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL);


--
-- Data for Name: token; Type: TABLE DATA; Schema: tidegate; Owner: -
--



--
-- Data for Name: waiting; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.waiting VALUES ('01a22bb6-5a06-7687-9cc4-ef12d379bc52', 'scheduled', 1796033300.621298, 'default', 1, '', 'shop:greet', '', 1796033300.621298, 0, '', 0, 0, NULL, NULL, '');


--
-- Data for Name: worker; Type: TABLE DATA; Schema: tidegate; Owner: -
--

INSERT INTO tidegate.worker VALUES ('d3e9b790-23b8-48a9-95fc-227fa2f9677d', 'worker-1', 'default', 'worker-1', 4711, '["*"]', 2, '0.1.0', 1796029700.234532, 1796029700.408543, 1796029730.408543, 1796029700.612833, 'stopped', false, '00000000-0000-0000-0000-000000000000', 0);


--
-- Name: act act_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.act
    ADD CONSTRAINT act_pkey PRIMARY KEY (task_id, at, kind);


--
-- Name: archive archive_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.archive
    ADD CONSTRAINT archive_pkey PRIMARY KEY (task_id);


--
-- Name: attempt attempt_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (task_id, run);


--
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);


--
-- Name: chunk chunk_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.chunk
    ADD CONSTRAINT chunk_pkey PRIMARY KEY (task_id, sequence);


--
-- Name: compatible compatible_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.compatible
    ADD CONSTRAINT compatible_pkey PRIMARY KEY (one);


--
-- Name: dead dead_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.dead
    ADD CONSTRAINT dead_pkey PRIMARY KEY (task_id);


--
-- Name: gate gate_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.gate
    ADD CONSTRAINT gate_pkey PRIMARY KEY (kind, name);


--
-- Name: key key_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.key
    ADD CONSTRAINT key_pkey PRIMARY KEY (kind, tenant, name);


--
-- Name: manifest manifest_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.manifest
    ADD CONSTRAINT manifest_pkey PRIMARY KEY (app);


--
-- Name: migration migration_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);


--
-- Name: payload payload_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.payload
    ADD CONSTRAINT payload_pkey PRIMARY KEY (task_id);


--
-- Name: permit permit_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.permit
    ADD CONSTRAINT permit_pkey PRIMARY KEY (id);


--
-- Name: progress progress_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (task_id);


--
-- Name: ready ready_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (task_id);


--
-- Name: result result_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.result
    ADD CONSTRAINT result_pkey PRIMARY KEY (task_id);


--
-- Name: rollup rollup_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.rollup
    ADD CONSTRAINT rollup_pkey PRIMARY KEY (minute, queue, function, upstream, tenant);


--
-- Name: running running_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.running
    ADD CONSTRAINT running_pkey PRIMARY KEY (task_id);


--
-- Name: stage stage_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.stage
    ADD CONSTRAINT stage_pkey PRIMARY KEY (id);


--
-- Name: staged staged_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.staged
    ADD CONSTRAINT staged_pkey PRIMARY KEY (batch_id, place);


--
-- Name: stream stream_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.stream
    ADD CONSTRAINT stream_pkey PRIMARY KEY (task_id);


--
-- Name: task task_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);


--
-- Name: token token_digest_key; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.token
    ADD CONSTRAINT token_digest_key UNIQUE (digest);


--
-- Name: token token_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (id);


--
-- Name: waiting waiting_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (task_id);


--
-- Name: worker worker_pkey; Type: CONSTRAINT; Schema: tidegate; Owner: -
--

ALTER TABLE ONLY tidegate.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);


--
-- Name: archive_cancelled; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX archive_cancelled ON tidegate.archive USING btree (task_id) WHERE (state = 'cancelled'::text);


--
-- Name: archive_finished; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX archive_finished ON tidegate.archive USING btree (finished_at);


--
-- Name: audit_at; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX audit_at ON tidegate.audit USING btree (at);


--
-- Name: dead_failed; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX dead_failed ON tidegate.dead USING btree (failed_at);


--
-- Name: dead_queue; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX dead_queue ON tidegate.dead USING btree (queue, failed_at);


--
-- Name: key_expires; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX key_expires ON tidegate.key USING btree (expires_at) WHERE (expires_at IS NOT NULL);


--
-- Name: permit_upstream; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX permit_upstream ON tidegate.permit USING btree (upstream, expires_at);


--
-- Name: ready_lane; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX ready_lane ON tidegate.ready USING btree (queue, priority, upstream, function, rank, task_id);


--
-- Name: ready_upstream; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX ready_upstream ON tidegate.ready USING btree (upstream, queue) WHERE (upstream <> ''::text);


--
-- Name: rollup_queue; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX rollup_queue ON tidegate.rollup USING btree (queue, minute);


--
-- Name: running_cancel; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX running_cancel ON tidegate.running USING btree (worker_id) WHERE (cancel_requested_at IS NOT NULL);


--
-- Name: running_upstream; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX running_upstream ON tidegate.running USING btree (upstream) WHERE (upstream <> ''::text);


--
-- Name: running_worker; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX running_worker ON tidegate.running USING btree (worker_id);


--
-- Name: staged_keyed; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX staged_keyed ON tidegate.staged USING btree (batch_id, place) WHERE (fingerprint IS NOT NULL);


--
-- Name: staged_task; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE UNIQUE INDEX staged_task ON tidegate.staged USING btree (task_id);


--
-- Name: waiting_due; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX waiting_due ON tidegate.waiting USING btree (due_at) WHERE (due_at IS NOT NULL);


--
-- Name: waiting_held; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX waiting_held ON tidegate.waiting USING btree (held_by, upstream) WHERE (held_by <> ''::text);


--
-- Name: waiting_queue; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX waiting_queue ON tidegate.waiting USING btree (queue, state);


--
-- Name: waiting_state; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX waiting_state ON tidegate.waiting USING btree (state, task_id);


--
-- Name: waiting_upstream; Type: INDEX; Schema: tidegate; Owner: -
--

CREATE INDEX waiting_upstream ON tidegate.waiting USING btree (upstream, since_at) WHERE (upstream <> ''::text);


--
-- PostgreSQL database dump complete
--


