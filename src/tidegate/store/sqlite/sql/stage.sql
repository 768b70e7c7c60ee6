-- stage: keep the parts of a large enqueue where nothing can see them yet. Staged tasks have
-- their rows in `task` and `payload` already; only the `staged` row says where they are.

-- name: stage
-- 1 stage id, 2 now
INSERT INTO stage (id, created_at)
VALUES (?, ?)
ON CONFLICT (id) DO NOTHING

-- name: state
-- 1 stage id
SELECT committed_at, refused_key, refused_for
FROM stage
WHERE id = ?1

-- name: last_place
-- 1 stage id
SELECT coalesce(max(place), 0)
FROM staged
WHERE stage_id = ?1

-- name: staged
-- 1 stage id, 2 place, 3 task id, 4 due moment or NULL for ready at the commit, 5 fingerprint or NULL if
-- the task wants no name, 6 seconds its key is kept, 7 seconds its unique name is kept or NULL for until
-- the final state
INSERT INTO staged (stage_id, place, task_id, due_at, fingerprint, key_seconds, unique_seconds)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: adopt
-- Take over tasks that an uncommitted stage holds: the same tasks staged again under another name.
-- 1 stage id, 2 task id, 3 place
UPDATE staged
SET
    stage_id = ?1,
    place = ?3
WHERE task_id = ?2
    AND stage_id <> ?1
    AND stage_id IN (SELECT id FROM stage WHERE committed_at IS NULL AND refused_for IS NULL)
