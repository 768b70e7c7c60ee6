-- forget: remove what other tables contain about forgotten tasks and tenants. The statements that delete the tasks
-- themselves are generated from the registry of tables.

-- name: final
-- Those of these tasks that are final or whose rows are gone.
-- 1 ids: carray of 16-byte ids
SELECT value
FROM carray(?1)
WHERE NOT EXISTS (SELECT 1 FROM task AS t WHERE t.id = value)
    OR EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = value)
    OR EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = value)

-- name: groups
-- The description of each group of failures that has one of these tasks quotes its messages.
-- 1 ids: carray of 16-byte ids
UPDATE failure_group
SET shape = '(forgotten)'
WHERE shape <> '(forgotten)'
    AND fingerprint IN (SELECT fingerprint FROM attempt WHERE task_id IN (SELECT value FROM carray(?1)))

-- name: marks
-- The notes of people about a group of failures may quote its messages too.
-- 1 ids: carray of 16-byte ids
UPDATE failure_mark
SET note = '(forgotten)'
WHERE note NOT IN ('', '(forgotten)')
    AND fingerprint IN (SELECT fingerprint FROM attempt WHERE task_id IN (SELECT value FROM carray(?1)))

-- name: gates
-- A gate shows the message of its latest failure. A message that an older version stored is found by its start.
-- 1 ids: carray of 16-byte ids
UPDATE gate
SET state = json_set(state, '$.message', '(forgotten)')
WHERE unhex(json_extract(state, '$.message_task_id'), '-') IN (SELECT value FROM carray(?1))
    OR (
        json_extract(state, '$.message') NOT IN ('', '(forgotten)')
        AND EXISTS (
            SELECT 1
            FROM attempt AS a
            WHERE a.task_id IN (SELECT value FROM carray(?1))
                AND instr(a.message, json_extract(state, '$.message')) = 1
        )
    )

-- name: keys
-- 1 ids: carray of 16-byte ids
DELETE FROM key
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: ticks
-- 1 ids: carray of 16-byte ids
UPDATE tick
SET task_id = NULL
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: permits
-- 1 ids: carray of 16-byte ids
DELETE FROM permit
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: batches
-- 1 ids: carray of 16-byte ids
UPDATE enqueue_batch
SET refused_key = '(forgotten)'
WHERE refused_for IN (SELECT value FROM carray(?1))

-- name: cached
-- Results that other tasks with the same content get.
-- 1 ids: carray of 16-byte ids
DELETE FROM cached_result
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: letters
-- 1 ids: carray of 16-byte ids
DELETE FROM operation_task
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: reasons
-- The reasons that people wrote in the audit log about these tasks. The record of who did what is kept.
-- 1 ids as a JSON array of texts
UPDATE audit
SET why = '(forgotten)'
WHERE why NOT IN ('', '(forgotten)')
    AND target IN (SELECT value FROM json_each(?1))

-- name: notices
-- 1 ids as a JSON array of texts
DELETE FROM alert_notice
WHERE about IN (SELECT value FROM json_each(?1))

-- name: tenant_keys
-- 1 tenant
DELETE FROM key
WHERE tenant = ?1

-- name: tenant_counters
-- 1 tenant
DELETE FROM rollup_tenant
WHERE tenant = ?1

-- name: tenant_tally
-- 1 tenant
UPDATE tally
SET tenant = ''
WHERE tenant = ?1

-- name: tenant_tokens
-- 1 tenant
DELETE FROM token
WHERE tenant = ?1

-- name: tenant_events
-- 1 tenant
DELETE FROM event
WHERE tenant = ?1

-- name: tenant_cached
-- 1 tenant
DELETE FROM cached_result
WHERE tenant = ?1

-- name: tenant_letters
-- 1 tenant
DELETE FROM operation_task
WHERE tenant = ?1

-- name: tenant_audit
-- 1 tenant
UPDATE audit
SET
    tenant = CASE tenant WHEN ?1 THEN '(forgotten)' ELSE tenant END,
    target = CASE target WHEN ?1 THEN '(forgotten)' ELSE target END,
    why = CASE why WHEN '' THEN '' ELSE '(forgotten)' END
WHERE tenant = ?1
    OR target = ?1

-- name: tenant_map_counts
-- 1 tenant
DELETE FROM map_deleted
WHERE map_id IN (SELECT id FROM map WHERE tenant = ?1)

-- name: tenant_maps
-- 1 tenant
DELETE FROM map
WHERE tenant = ?1

-- name: tenant_operations
-- 1 tenant, 2 the same inside JSON
DELETE FROM operation
WHERE tenant = ?1
    OR instr(filter, ?2) > 0

-- name: tenant_schedules
-- 1 the tenant as a member of JSON
DELETE FROM schedule
WHERE instr(task, ?1) > 0

-- name: tenant_notices
-- 1 the tenant inside JSON
DELETE FROM alert_notice
WHERE instr(body, ?1) > 0

-- name: tenant_alerts
-- 1 tenant
DELETE FROM alert_episode
WHERE subject = ?1
    OR instr(detail, ?1) > 0

-- name: tenant_marks
-- 1 tenant
UPDATE failure_mark
SET note = '(forgotten)'
WHERE instr(note, ?1) > 0
