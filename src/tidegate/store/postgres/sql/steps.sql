-- steps: begin and end the steps of runs. A step row is locked before any of its entries in `doubt`, and rows in the
-- order of their tasks and keys, so that two batches cannot deadlock.

-- shared: conflict
ON CONFLICT (task_id, key, run, attempt) DO UPDATE
SET
    state = CASE
        WHEN e.state = 'open' OR excluded.state IN ('answered', 'paid_twice') THEN excluded.state
        ELSE e.state
    END,
    on_doubt = excluded.on_doubt,
    cause = coalesce(nullif(excluded.cause, ''), e.cause),
    upstream = coalesce(nullif(excluded.upstream, ''), e.upstream),
    request_id = coalesce(nullif(excluded.request_id, ''), e.request_id),
    input_tokens = coalesce(excluded.input_tokens, e.input_tokens),
    output_tokens = coalesce(excluded.output_tokens, e.output_tokens),
    resolved_at = CASE
        WHEN e.state = excluded.state THEN e.resolved_at
        WHEN e.state = 'open' OR excluded.state IN ('answered', 'paid_twice') THEN excluded.resolved_at
        ELSE e.resolved_at
    END

-- name: begin
-- The running rows are locked, so that no run ends during the statement. Returns the place of each step and its status;
-- NULL for a step that another transaction began at the same moment: run the statement again.
-- 1 at, arrays in the order of task id and key, each pair once: 2 task ids, 3 runs, 4 keys, 5 attempts, 6 names, 7 what
-- to do in doubt, 8 upstreams, 9 fingerprints of arguments, 10 places in the order of the caller; 11 the cause of a doubt
-- that has none
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($1) AS now
),
given AS MATERIALIZED (
    SELECT place, task_id, run, key, attempt, name, on_doubt, upstream, arguments
    FROM unnest(
        $2::uuid[], $3::integer[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::integer[]
    ) AS g (task_id, run, key, attempt, name, on_doubt, upstream, arguments, place)
),
current AS MATERIALIZED (
    SELECT g.place, g.task_id, g.run, g.key, g.attempt, g.name, g.on_doubt, g.upstream, g.arguments
    FROM given AS g
    CROSS JOIN LATERAL (
        SELECT 1
        FROM /*schema*/running AS x
        WHERE x.task_id = g.task_id
            AND x.run = g.run
        FOR KEY SHARE
    ) AS r
),
held AS MATERIALIZED (
    SELECT
        c.place, s.state, s.run, s.attempt, s.tries, s.begun_at, s.upstream, s.cause, s.request_id, s.codec, s.arguments,
        s.data, s.input_tokens, s.output_tokens
    FROM current AS c
    CROSS JOIN LATERAL (
        SELECT
            x.state, x.run, x.attempt, x.tries, x.begun_at, x.upstream, x.cause, x.request_id, x.codec,
            x.arguments, CASE WHEN x.state = 'done' THEN x.data END AS data, x.input_tokens, x.output_tokens
        FROM /*schema*/step AS x
        WHERE x.task_id = c.task_id
            AND x.key = c.key
        FOR UPDATE
    ) AS s
),
decided AS MATERIALIZED (
    SELECT
        c.place, c.task_id, c.run, c.key, c.attempt, c.name, c.on_doubt, c.upstream, c.arguments, h.tries, h.begun_at,
        h.run AS old_run, h.attempt AS old_attempt, h.upstream AS old_upstream, h.cause, h.request_id, h.input_tokens,
        h.output_tokens,
        CASE
            WHEN h.place IS NULL THEN 'new'
            WHEN h.state IN ('done', 'rejected') THEN h.state
            WHEN h.run = c.run AND h.attempt >= c.attempt THEN 'resend'
            WHEN h.state = 'failed' THEN 'again'
            WHEN c.on_doubt = 'repeat' THEN 'repeat'
            ELSE 'in_doubt'
        END AS fate
    FROM current AS c
    LEFT JOIN held AS h ON h.place = c.place
),
begun AS (
    INSERT INTO /*schema*/step AS s (
        task_id, key, name, state, run, attempt, on_doubt, arguments, tries, begun_at, upstream
    )
    SELECT
        d.task_id, d.key, d.name, 'open', d.run, d.attempt, d.on_doubt, d.arguments, coalesce(d.tries, 0) + 1, clock.now,
        d.upstream
    FROM decided AS d
    CROSS JOIN clock
    WHERE d.fate IN ('new', 'again', 'repeat')
    ORDER BY d.place
    ON CONFLICT (task_id, key) DO UPDATE
    SET
        name = excluded.name,
        state = 'open',
        run = excluded.run,
        attempt = excluded.attempt,
        on_doubt = excluded.on_doubt,
        arguments = excluded.arguments,
        tries = excluded.tries,
        begun_at = excluded.begun_at,
        ended_at = NULL,
        upstream = excluded.upstream,
        cause = '',
        request_id = '',
        input_tokens = NULL,
        output_tokens = NULL,
        doubted = 0
    WHERE s.tries = excluded.tries - 1
    RETURNING task_id, key
),
noted AS (
    UPDATE /*schema*/step AS s
    SET
        on_doubt = d.on_doubt,
        doubted = 1
    FROM decided AS d
    WHERE s.task_id = d.task_id
        AND s.key = d.key
        AND d.fate = 'in_doubt'
),
entered AS (
    INSERT INTO /*schema*/doubt AS e (
        task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at, resolved_at,
        input_tokens, output_tokens
    )
    SELECT
        d.task_id, d.key, d.old_run, d.old_attempt, CASE d.fate WHEN 'repeat' THEN 'repeated' ELSE 'open' END,
        d.on_doubt, coalesce(nullif(d.cause, ''), $11), d.old_upstream, d.request_id, d.begun_at, clock.now,
        CASE d.fate WHEN 'repeat' THEN clock.now END, d.input_tokens, d.output_tokens
    FROM decided AS d
    CROSS JOIN clock
    WHERE d.fate IN ('repeat', 'in_doubt')
    ORDER BY d.place
    /*conflict*/
)
SELECT
    g.place,
    CASE
        WHEN d.place IS NULL THEN 'fenced'
        WHEN d.fate IN ('done', 'rejected', 'in_doubt') THEN d.fate
        WHEN d.fate = 'resend' OR b.key IS NOT NULL THEN 'begun'
    END,
    h.data,
    h.codec,
    d.fate = 'repeat',
    h.arguments
FROM given AS g
LEFT JOIN decided AS d ON d.place = g.place
LEFT JOIN held AS h ON h.place = g.place AND d.fate = 'done'
LEFT JOIN begun AS b ON b.task_id = g.task_id AND b.key = g.key

-- name: end
-- Returns the place of each step that exists, its status, and the result that counts if it is another run's.
-- 1 at, arrays in the order of task id and key, each pair once: 2 task ids, 3 runs, 4 keys, 5 attempts, 6 statuses,
-- 7 results, 8 codecs, 9 causes, 10 upstreams, 11 ids of requests, 12 input and 13 output tokens or NULL, 14 places in the
-- order of the caller; 15 the cause of what was paid twice
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($1) AS now
),
given AS MATERIALIZED (
    SELECT
        place, task_id, run, key, attempt, status, data, codec, cause, upstream, request_id, input_tokens, output_tokens
    FROM unnest(
        $2::uuid[], $3::integer[], $4::text[], $5::integer[], $6::text[], $7::bytea[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::integer[]
    ) AS g (
        task_id, run, key, attempt, status, data, codec, cause, upstream, request_id, input_tokens, output_tokens, place
    )
),
held AS MATERIALIZED (
    SELECT
        g.place, s.state, s.run, s.attempt, s.on_doubt, s.begun_at, s.upstream, s.cause, s.request_id, s.doubted,
        s.codec, s.data, s.input_tokens, s.output_tokens
    FROM given AS g
    CROSS JOIN LATERAL (
        SELECT
            x.state, x.run, x.attempt, x.on_doubt, x.begun_at, x.upstream, x.cause, x.request_id, x.doubted, x.codec,
            CASE WHEN x.state = 'done' THEN x.data END AS data, x.input_tokens, x.output_tokens
        FROM /*schema*/step AS x
        WHERE x.task_id = g.task_id
            AND x.key = g.key
        FOR UPDATE
    ) AS s
),
decided AS MATERIALIZED (
    SELECT
        g.place, g.task_id, g.run, g.key, g.attempt, g.cause, g.request_id, g.input_tokens, g.output_tokens,
        h.input_tokens AS old_input_tokens, h.output_tokens AS old_output_tokens, h.run AS old_run, h.attempt AS old_attempt,
        h.state, h.on_doubt, h.begun_at, h.cause AS old_cause, h.request_id AS old_request_id, h.doubted = 1 AS doubted,
        h.upstream AS old_upstream, coalesce(nullif(g.upstream, ''), h.upstream) AS upstream,
        (g.run, g.attempt) = (h.run, h.attempt) AS is_own,
        (g.run, g.attempt) < (h.run, h.attempt) AS is_earlier,
        CASE g.status
            WHEN 'done' THEN CASE
                WHEN h.state IN ('open', 'failed') THEN 'adopt'
                WHEN h.state = 'rejected' THEN 'gone'
                WHEN (g.run, g.attempt) = (h.run, h.attempt) THEN 'resend'
                ELSE 'twice'
            END
            WHEN 'failed' THEN CASE
                WHEN h.state = 'done' THEN 'already'
                WHEN h.state = 'open' AND (g.run, g.attempt) = (h.run, h.attempt) THEN 'fail'
                ELSE 'failed'
            END
            ELSE CASE
                WHEN h.state = 'done' THEN 'already'
                WHEN h.state = 'open' AND (g.run, g.attempt) = (h.run, h.attempt) THEN 'doubt'
                ELSE 'in_doubt'
            END
        END AS fate,
        g.status = 'in_doubt' AS is_doubtful
    FROM given AS g
    JOIN held AS h ON h.place = g.place
),
saved AS (
    UPDATE /*schema*/step AS s
    SET
        state = CASE d.fate WHEN 'adopt' THEN 'done' WHEN 'fail' THEN 'failed' ELSE s.state END,
        run = d.run,
        attempt = d.attempt,
        ended_at = CASE d.fate WHEN 'doubt' THEN NULL ELSE clock.now END,
        data = CASE d.fate WHEN 'adopt' THEN g.data END,
        codec = CASE d.fate WHEN 'adopt' THEN g.codec ELSE '' END,
        upstream = d.upstream,
        cause = d.cause,
        request_id = d.request_id,
        input_tokens = d.input_tokens,
        output_tokens = d.output_tokens,
        doubted = CASE WHEN d.fate = 'doubt' OR d.is_earlier THEN 1 WHEN d.is_own THEN s.doubted ELSE 0 END
    FROM decided AS d
    JOIN given AS g ON g.place = d.place
    CROSS JOIN clock
    WHERE s.task_id = d.task_id
        AND s.key = d.key
        AND d.fate IN ('adopt', 'fail', 'doubt')
),
calls AS (
    -- The reported call, if it is in the ledger or must be added.
    SELECT
        d.task_id, d.key, d.run, d.attempt, d.on_doubt, d.upstream, d.request_id, d.begun_at, d.place, d.input_tokens,
        d.output_tokens,
        CASE WHEN d.fate IN ('twice', 'gone') THEN $15 ELSE d.cause END AS cause,
        CASE d.fate
            WHEN 'adopt' THEN 'answered'
            WHEN 'fail' THEN 'reconciled'
            WHEN 'doubt' THEN 'open'
            WHEN 'twice' THEN 'paid_twice'
            WHEN 'gone' THEN 'paid_twice'
            ELSE 'repeated'
        END AS state
    FROM decided AS d
    WHERE d.fate IN ('twice', 'gone', 'doubt')
        OR d.fate IN ('adopt', 'fail') AND (d.is_earlier OR d.is_own AND d.doubted)
        OR d.is_doubtful AND NOT d.is_own
    UNION ALL
    -- The call that began the step last, if the result of another call is adopted.
    SELECT
        d.task_id, d.key, d.old_run, d.old_attempt, d.on_doubt, d.old_upstream, d.old_request_id, d.begun_at, d.place,
        d.old_input_tokens, d.old_output_tokens, d.old_cause, CASE WHEN d.is_earlier THEN 'repeated' ELSE 'reconciled' END
    FROM decided AS d
    WHERE d.fate = 'adopt'
        AND NOT d.is_own
        AND (d.doubted OR d.state = 'open' AND NOT d.is_earlier)
),
entered AS (
    INSERT INTO /*schema*/doubt AS e (
        task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at, resolved_at,
        input_tokens, output_tokens
    )
    SELECT
        c.task_id, c.key, c.run, c.attempt, c.state, c.on_doubt, c.cause, c.upstream, c.request_id, c.begun_at,
        clock.now, CASE WHEN c.state <> 'open' THEN clock.now END, c.input_tokens, c.output_tokens
    FROM calls AS c
    CROSS JOIN clock
    ORDER BY c.place
    /*conflict*/
)
SELECT
    d.place,
    CASE
        WHEN d.fate IN ('adopt', 'resend') THEN 'done'
        WHEN d.fate IN ('fail', 'failed') THEN 'failed'
        WHEN d.fate IN ('doubt', 'in_doubt') THEN 'in_doubt'
        WHEN d.fate = 'gone' THEN 'gone'
        ELSE 'already'
    END,
    h.data,
    h.codec
FROM decided AS d
LEFT JOIN held AS h ON h.place = d.place AND d.fate IN ('twice', 'already')

-- name: rows
-- 1 task id, 2 whether results are returned too, 3 the most bytes of a result or NULL, 4 the most bytes that such results
-- may have in total or NULL; with more, none is returned
SELECT
    key, name, state, run, attempt, begun_at, ended_at, coalesce(octet_length(data), 0),
    CASE
        WHEN $2
            AND ($3::bigint IS NULL OR octet_length(data) <= $3)
            AND (
                $4::bigint IS NULL
                OR $4 >= (
                    SELECT coalesce(sum(octet_length(o.data)), 0)
                    FROM /*schema*/step AS o
                    WHERE o.task_id = $1
                        AND ($3::bigint IS NULL OR octet_length(o.data) <= $3)
                )
            )
            THEN data
    END,
    codec, upstream, arguments, cached_from
FROM /*schema*/step
WHERE task_id = $1
ORDER BY number
