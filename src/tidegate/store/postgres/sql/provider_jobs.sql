-- provider_jobs: jobs at providers, which tasks submit and poll; and the tasks that cancel theirs before they end.

-- name: is_current
-- The row is locked, so that the run does not end during the transaction.
-- 1 task id, 2 run
SELECT 1
FROM /*schema*/running
WHERE task_id = $1
    AND run = $2
FOR KEY SHARE

-- name: add
-- 1 task id, 2 key, 3 name, 4 provider, 5 run, 6 now, 7 whether it can be cancelled: 1 or 0
INSERT INTO /*schema*/provider_job (
    task_id, key, name, provider, state, generation, job_id, run, polls, failed_polls, begun_at, next_poll_at, note, error,
    can_cancel, codec
)
VALUES ($1, $2, $3, $4, 'submitting', 1, '', $5, 0, 0, $6, $6, '', '', $7, '')
ON CONFLICT (task_id, key) DO NOTHING

-- name: find
-- 1 task id, 2 key
SELECT
    state, generation, job_id, run, polls, failed_polls, begun_at, submitted_at, polled_at, next_poll_at, done, total,
    note, error, can_cancel, cancel_requested_at, ended_at, codec, data
FROM /*schema*/provider_job
WHERE task_id = $1
    AND key = $2
FOR UPDATE

-- name: save
-- 1 task id, 2 key, 3 state, 4 generation, 5 job id, 6 run, 7 polls, 8 failed polls, 9 begun, 10 submitted, 11 polled,
-- 12 next poll, 13 done, 14 total, 15 note, 16 error, 17 can be cancelled, 18 cancel requested, 19 ended, 20 codec,
-- 21 data
UPDATE /*schema*/provider_job
SET
    state = $3, generation = $4, job_id = $5, run = $6, polls = $7, failed_polls = $8, begun_at = $9, submitted_at = $10,
    polled_at = $11, next_poll_at = $12, done = $13, total = $14, note = $15, error = $16, can_cancel = $17,
    cancel_requested_at = $18, ended_at = $19, codec = $20, data = $21
WHERE task_id = $1
    AND key = $2

-- name: has_failed_since
-- Whether a run of a task from this one on failed.
-- 1 task id, 2 run
SELECT 1
FROM /*schema*/attempt
WHERE task_id = $1
    AND run >= $2
    AND (outcome = 'dead' OR charge = 'attempt')
LIMIT 1

-- name: add_items
-- Arrays: 1 task ids, 2 keys, 3 items, 4 codecs, 5 data
INSERT INTO /*schema*/provider_job_item (task_id, key, item, codec, data)
SELECT task_id, key, item, codec, data
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[]) AS g (task_id, key, item, codec, data)
ON CONFLICT DO NOTHING

-- name: items
-- 1 task id, 2 key, 3 the item after which to continue, 4 how many at most
SELECT item, data, codec
FROM /*schema*/provider_job_item
WHERE task_id = $1
    AND key = $2
    AND item > $3
ORDER BY item
LIMIT $4

-- name: list
-- 1 task id
SELECT
    j.key, j.name, j.provider, j.state, j.generation, j.job_id, j.polls, j.failed_polls, j.begun_at, j.submitted_at,
    j.polled_at, j.next_poll_at, j.done, j.total, j.note, j.error, j.cancel_requested_at, j.ended_at,
    (SELECT count(*) FROM /*schema*/provider_job_item AS i WHERE i.task_id = j.task_id AND i.key = j.key)
FROM /*schema*/provider_job AS j
WHERE j.task_id = $1
ORDER BY j.number

-- name: ask
-- Ask for the cancel of the jobs of tasks whose runs end. Returns the tasks that have such jobs.
-- 1 ids: array of uuid, 2 now
UPDATE /*schema*/provider_job
SET cancel_requested_at = $2
WHERE task_id = ANY ($1::uuid[])
    AND ended_at IS NULL
    AND can_cancel = 1
    AND cancel_requested_at IS NULL
RETURNING task_id

-- name: ask_waiting
-- As `ask`, for tasks that are not running, and also if the cancel is requested already.
-- 1 ids: array of uuid, 2 now
WITH left_ready AS MATERIALIZED (
    SELECT task_id FROM /*schema*/ready WHERE task_id = ANY ($1::uuid[]) ORDER BY task_id FOR UPDATE
),
left_waiting AS MATERIALIZED (
    SELECT task_id FROM /*schema*/waiting WHERE task_id = ANY ($1::uuid[]) ORDER BY task_id FOR UPDATE
)
UPDATE /*schema*/provider_job AS j
SET cancel_requested_at = coalesce(j.cancel_requested_at, $2)
WHERE j.task_id = ANY ($1::uuid[])
    AND j.ended_at IS NULL
    AND j.can_cancel = 1
    AND j.task_id IN (SELECT task_id FROM left_ready UNION ALL SELECT task_id FROM left_waiting)
RETURNING j.task_id

-- name: pending
-- The label of a task that has jobs whose cancel was requested, and which have not ended.
-- 1 task id, 2 label
SELECT t.labels ->> $2::text
FROM /*schema*/task AS t
WHERE t.id = $1
    AND EXISTS (
        SELECT 1
        FROM /*schema*/provider_job AS j
        WHERE j.task_id = $1
            AND j.ended_at IS NULL
            AND j.can_cancel = 1
            AND j.cancel_requested_at IS NOT NULL
    )

-- name: give_up
-- Record of the jobs of a task, which were to be cancelled before it ended, that they were not.
-- 1 task id, 2 now, 3 why
UPDATE /*schema*/provider_job
SET state = 'cancel_failed', ended_at = $2, error = $3
WHERE task_id = $1
    AND ended_at IS NULL
    AND cancel_requested_at IS NOT NULL

-- name: label
-- 1 ids: array of uuid, 2 label, 3 its value
UPDATE /*schema*/task
SET labels = coalesce(labels, '{}'::jsonb) || jsonb_build_object($2::text, $3::text)
WHERE id = ANY ($1::uuid[])

-- name: unlabel
-- 1 task id, 2 label
UPDATE /*schema*/task
SET labels = nullif(labels - $2::text, '{}'::jsonb)
WHERE id = $1
    AND labels ? $2::text

-- name: wake
-- A task keeps the distance of its rank from the moment at which it wakes.
-- 1 ids: array of uuid, 2 now
UPDATE /*schema*/waiting
SET rank = $2 + rank - coalesce(due_at, since_at), due_at = $2, held_until_at = NULL, held_by = '', spends = 0
WHERE task_id = ANY (ARRAY (
    SELECT task_id
    FROM /*schema*/waiting
    WHERE task_id = ANY ($1::uuid[])
        AND (due_at IS NULL OR coalesce(held_until_at, due_at) > $2)
    ORDER BY task_id
    FOR UPDATE
))
