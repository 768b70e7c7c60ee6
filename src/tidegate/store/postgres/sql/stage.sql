-- stage: keep the parts of a large enqueue where nothing can see them yet. Staged tasks have
-- their rows in `task` and `payload` already; only the `staged` row says where they are.

-- name: stage
-- 1 stage id, 2 now
INSERT INTO /*schema*/stage (id, created_at)
VALUES ($1, $2)
ON CONFLICT (id) DO NOTHING

-- name: state
-- Locks the stage: a stage is filled, committed or dropped by one at a time.
-- 1 stage id
SELECT committed_at, refused_key, refused_for::text
FROM /*schema*/stage
WHERE id = $1
FOR UPDATE

-- name: last_place
-- 1 stage id
SELECT coalesce(max(place), 0)
FROM /*schema*/staged
WHERE stage_id = $1

-- name: stored
-- Which of these ids are stored already.
-- 1 ids: array of uuid
SELECT id
FROM /*schema*/task
WHERE id = ANY($1::uuid[])

-- name: adopt
-- Take over tasks that an uncommitted stage holds: the same tasks staged again under another name.
-- 1 stage id, 2 task ids: array of uuid, 3 their places
UPDATE /*schema*/staged AS s
SET
    stage_id = $1,
    place = given.place
FROM unnest($2::uuid[], $3::integer[]) AS given (id, place)
WHERE s.task_id = given.id
    AND s.stage_id <> $1
    AND s.stage_id IN (
        SELECT c.id FROM /*schema*/stage AS c WHERE c.committed_at IS NULL AND c.refused_for IS NULL
    )
