-- task_tables: statements that are the same for each table of the registry. The code writes the table's name in place
-- of `task_table` and the name of its column with the task's id in place of `task_key`.

-- name: export
-- Rows are moved by the names of their columns, so this statement reads all columns.
-- 1 ids: carray of 16-byte ids
SELECT *
FROM task_table
WHERE task_key IN (SELECT value FROM carray(?1))

-- name: delete
-- 1 ids: carray of 16-byte ids
DELETE FROM task_table
WHERE task_key IN (SELECT value FROM carray(?1))

-- name: with_part
-- Those of these tasks that are finished and have a row in this table.
-- 1 ids: carray of 16-byte ids
SELECT DISTINCT p.task_key
FROM task_table AS p
WHERE p.task_key IN (SELECT value FROM carray(?1))
    AND EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = p.task_key)

-- name: delete_part
-- The rows of those of these tasks that are finished.
-- 1 ids: carray of 16-byte ids
DELETE FROM task_table AS p
WHERE p.task_key IN (SELECT value FROM carray(?1))
    AND EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = p.task_key)

-- name: with_unmarked_part
-- The same as `with_part`, for a table whose rows stay and are marked as removed.
-- 1 ids: carray of 16-byte ids
SELECT DISTINCT p.task_key
FROM task_table AS p
WHERE p.task_key IN (SELECT value FROM carray(?1))
    AND p.codec_tag <> 'removed'
    AND EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = p.task_key)

-- name: mark_part
-- The same as `delete_part`, for a table whose rows stay and are marked as removed.
-- 1 ids: carray of 16-byte ids
UPDATE task_table AS p
SET
    codec_tag = 'removed',
    data = x''
WHERE p.task_key IN (SELECT value FROM carray(?1))
    AND p.codec_tag <> 'removed'
    AND EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = p.task_key)
