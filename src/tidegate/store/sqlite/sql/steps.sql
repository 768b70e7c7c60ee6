-- steps: begin and end the steps of runs.

-- name: is_current
-- 1 task id, 2 run
SELECT 1
FROM running
WHERE task_id = ?1
    AND run = ?2

-- name: one
-- 1 task id, 2 key
SELECT
    state, run, attempt, on_doubt, begun_at, upstream, cause, request_id, doubted, codec, arguments,
    CASE WHEN state = 'done' THEN data END, input_tokens, output_tokens
FROM step
WHERE task_id = ?1
    AND key = ?2

-- name: begin
-- 1 task id, 2 key, 3 name, 4 run, 5 attempt, 6 what to do in doubt, 7 upstream, 8 now, 9 fingerprint of the arguments
INSERT INTO step (task_id, key, name, state, run, attempt, on_doubt, arguments, tries, begun_at, upstream)
VALUES (?1, ?2, ?3, 'open', ?4, ?5, ?6, ?9, 1, ?8, ?7)
ON CONFLICT (task_id, key) DO UPDATE
SET
    name = excluded.name,
    state = 'open',
    run = excluded.run,
    attempt = excluded.attempt,
    on_doubt = excluded.on_doubt,
    arguments = excluded.arguments,
    tries = tries + 1,
    begun_at = excluded.begun_at,
    ended_at = NULL,
    upstream = excluded.upstream,
    cause = '',
    request_id = '',
    input_tokens = NULL,
    output_tokens = NULL,
    doubted = 0

-- name: note
-- 1 task id, 2 key, 3 what to do in doubt
UPDATE step
SET
    on_doubt = ?3,
    doubted = 1
WHERE task_id = ?1
    AND key = ?2

-- name: end
-- 1 task id, 2 key, 3 state, 4 run, 5 attempt, 6 when it ended or NULL, 7 result or NULL, 8 codec, 9 upstream, 10 cause,
-- 11 id of the request, 12 whether the run and attempt are in the ledger, 13 input and 14 output tokens or NULL
UPDATE step
SET
    state = ?3,
    run = ?4,
    attempt = ?5,
    ended_at = ?6,
    data = ?7,
    codec = ?8,
    upstream = ?9,
    cause = ?10,
    request_id = ?11,
    doubted = ?12,
    input_tokens = ?13,
    output_tokens = ?14
WHERE task_id = ?1
    AND key = ?2

-- name: enter
-- Put a call into the ledger, or change its entry. An earlier decision of a person or of another answer is kept, unless
-- a late answer of the call itself comes.
-- 1 task id, 2 key, 3 run, 4 attempt, 5 state, 6 what to do in doubt, 7 cause, 8 upstream, 9 id of the request, 10 when it
-- was sent, 11 now, 12 when it was resolved or NULL, 13 input and 14 output tokens or NULL
INSERT INTO doubt AS e (
    task_id, key, run, attempt, state, on_doubt, cause, upstream, request_id, sent_at, found_at, resolved_at,
    input_tokens, output_tokens
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
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

-- name: rows
-- 1 task id, 2 whether results are returned too, 3 the most bytes of a result or NULL, 4 the most bytes that such results
-- may have in total or NULL; with more, none is returned
SELECT
    key, name, state, run, attempt, begun_at, ended_at, coalesce(length(data), 0),
    CASE
        WHEN ?2
            AND (?3 IS NULL OR length(data) <= ?3)
            AND (
                ?4 IS NULL
                OR ?4 >= (
                    SELECT coalesce(sum(length(o.data)), 0)
                    FROM step AS o
                    WHERE o.task_id = ?1
                        AND (?3 IS NULL OR length(o.data) <= ?3)
                )
            )
            THEN data
    END,
    codec, upstream, arguments, cached_from
FROM step
WHERE task_id = ?1
ORDER BY number
