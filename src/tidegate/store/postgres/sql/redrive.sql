-- redrive: send dead tasks back to the main queue. The run number continues to rise, and the history stays.
-- moves: dead -> ready

-- name: letters
-- Lock these dead letters; return the fields that are needed to take their unique names again.
-- 1 ids in order
SELECT d.task_id, t.tenant, CASE WHEN t.unique_until_final THEN t.unique_name END
FROM unnest($1::uuid[]) AS given (id)
CROSS JOIN LATERAL (
    SELECT x.task_id
    FROM /*schema*/dead AS x
    WHERE x.task_id = given.id
    FOR UPDATE
) AS d
INNER JOIN /*schema*/task AS t ON t.id = d.task_id

-- name: take_name
-- Take a task's unique name again; returns the task that holds it, NULL if it was free.
-- 1 at, 2 task id, 3 tenant, 4 name
SELECT holder
FROM /*schema*/settle_1(/*schema*/moment($1), $2, $3, ''::bytea, NULL, NULL, $4, NULL)

-- name: known
-- Those of these ids that are ids of visible tasks.
-- 1 ids
SELECT t.id
FROM /*schema*/task AS t
LEFT JOIN /*schema*/enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN /*schema*/enqueue_batch AS c ON c.id = s.batch_id
WHERE t.id = ANY ($1::uuid[])
    AND (s.task_id IS NULL OR c.committed_at IS NOT NULL)

-- name: payload
-- 1 task id, 2 arguments as bytes, 3 codec tag
UPDATE /*schema*/payload
SET
    args = $2,
    codec_tag = $3
WHERE task_id = $1

-- name: redrive
-- Move the locked dead letters.
-- 1 at, 2 ids, 3 ids of those with new arguments, 4 note for the history, 5 note of those with new arguments, 6 other
-- queue or NULL, 7 whether charged attempts still count, 8 seconds to add to the rank
WITH clock AS MATERIALIZED (
    SELECT /*schema*/moment($1) AS now
),
gone AS (
    DELETE FROM /*schema*/dead
    WHERE task_id = ANY ($2::uuid[])
    RETURNING task_id, run
),
reset_counters AS (
    UPDATE /*schema*/task AS t
    SET
        queue = coalesce($6::text, t.queue),
        attempts = CASE WHEN $7::boolean THEN t.attempts ELSE 0 END,
        parks = 0,
        crashes = 0,
        losses = 0,
        releases = 0,
        rule_attempts = CASE WHEN $7::boolean THEN t.rule_attempts END,
        redrives = t.redrives + 1,
        redriven_at = clock.now,
        first_started_at = NULL,
        parked_at = NULL,
        paused_seconds = 0,
        deadline_at = CASE
            WHEN t.deadline_at <= clock.now THEN clock.now + t.deadline_seconds
            ELSE t.deadline_at
        END
    FROM clock
    WHERE t.id = ANY ($2::uuid[])
    RETURNING t.id, t.queue, t.priority, t.upstream, t.function, t.tenant
),
noted AS (
    INSERT INTO /*schema*/action AS a (task_id, at, kind, why)
    SELECT
        gone.task_id, clock.now, 'redriven',
        CASE WHEN gone.task_id = ANY ($3::uuid[]) THEN $5::text ELSE $4::text END
    FROM gone
    CROSS JOIN clock
    ON CONFLICT (task_id, at, kind) DO UPDATE
    SET why = excluded.why
)
INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT
    r.id, r.queue, r.priority, r.upstream, r.function, r.tenant, clock.now + $8::float8, clock.now, gone.run
FROM reset_counters AS r
INNER JOIN gone ON gone.task_id = r.id
CROSS JOIN clock
