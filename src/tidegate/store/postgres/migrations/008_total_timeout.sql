-- 008: total_timeout: a task may have a total timeout of its own, and a deadline that is a moment.
-- Locks: the table for a moment; rewrites no row.

ALTER TABLE /*schema*/task ADD COLUMN total_timeout_seconds double precision;  -- NULL: that of its function

-- As `enqueue_1`, which stays for processes of the version before.
-- Store one task, in whatever transaction the caller is in. `answer` is `stored`; `held`, by the task `holder`:
-- a resend, or its name is taken; `conflict`: the key of `holder` came with other arguments; `elsewhere`: this
-- is not the database the caller means. Only `stored` has stored anything.
CREATE FUNCTION /*schema*/enqueue_2(
    home uuid,                          -- what identity() must be; NULL for any
    at double precision,                -- see moment
    id uuid, function text, queue text, priority smallint, upstream text, tenant text, codec_tag text, args bytea,
    fingerprint bytea, key_name text, key_seconds double precision, unique_name text,
    unique_seconds double precision,    -- NULL: until the final state
    delay_seconds double precision,
    run_at double precision,            -- wins over the delay
    deadline_seconds double precision, timeout_seconds double precision, max_attempts integer, labels jsonb,
    total_timeout_seconds double precision,
    deadline_at double precision,       -- wins over the seconds
    OUT holder uuid, OUT answer text
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    now CONSTANT double precision := coalesce(at, date_part('epoch', clock_timestamp()));
    due_at CONSTANT double precision := coalesce(run_at, now + delay_seconds);
    is_conflict boolean;
BEGIN
    IF home <> /*schema*/identity() THEN
        answer := 'elsewhere';
        RETURN;
    END IF;
    IF key_name IS NOT NULL OR unique_name IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = id) AND NOT /*schema*/unsee_1(id) THEN
            holder := id;
            answer := 'held';
            RETURN;
        END IF;
        SELECT s.holder, s.conflict INTO holder, is_conflict
        FROM /*schema*/settle_1(
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
            INSERT INTO /*schema*/task (
                id, function, queue, priority, upstream, tenant, idempotency_key, unique_name, unique_until_final,
                timeout_seconds, max_attempts, deadline_seconds, deadline_at, labels, enqueued_at,
                total_timeout_seconds
            )
            VALUES (
                id, function, queue, priority, upstream, tenant, key_name, unique_name,
                unique_name IS NOT NULL AND unique_seconds IS NULL,
                timeout_seconds, max_attempts, deadline_seconds, coalesce(deadline_at, now + deadline_seconds), labels, now,
                total_timeout_seconds
            )
            ON CONFLICT ON CONSTRAINT task_pkey DO NOTHING
            RETURNING 1
        ),
        carried AS (
            INSERT INTO /*schema*/payload (task_id, codec_tag, args)
            SELECT id, codec_tag, args
            FROM new
        ),
        at_once AS (
            INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
            SELECT id, queue, priority, upstream, function, tenant, now, now, 0
            FROM new
            WHERE due_at <= now
        ),
        later AS (
            INSERT INTO /*schema*/waiting (
                task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run
            )
            SELECT id, 'scheduled', due_at, queue, priority, upstream, function, tenant, due_at, 0
            FROM new
            WHERE due_at > now
        )
        INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, enqueued)
        SELECT floor(now / 60), queue, function, upstream, tenant, 1
        FROM new;
        EXIT WHEN FOUND;
        IF NOT /*schema*/unsee_1(id) THEN
            answer := 'held';
            RETURN;
        END IF;
    END LOOP;
END
$$;
