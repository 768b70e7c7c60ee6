-- forget: remove what other tables contain about forgotten tasks and tenants. The statements that delete the tasks
-- themselves are generated from the registry of tables.

-- name: final
-- Those of these tasks that are final or whose rows are gone.
-- 1 ids
SELECT g.id
FROM unnest($1::uuid[]) AS g (id)
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = g.id)
    OR EXISTS (SELECT 1 FROM /*schema*/archive AS a WHERE a.task_id = g.id)
    OR EXISTS (SELECT 1 FROM /*schema*/dead AS d WHERE d.task_id = g.id)

-- name: groups
-- The description of each group of failures that has one of these tasks quotes its messages.
-- 1 ids
UPDATE /*schema*/failure_group
SET shape = '(forgotten)'
WHERE shape <> '(forgotten)'
    AND fingerprint IN (SELECT fingerprint FROM /*schema*/attempt WHERE task_id = ANY ($1::uuid[]))

-- name: marks
-- The notes of people about a group of failures may quote its messages too.
-- 1 ids
UPDATE /*schema*/failure_mark
SET note = '(forgotten)'
WHERE note NOT IN ('', '(forgotten)')
    AND fingerprint IN (SELECT fingerprint FROM /*schema*/attempt WHERE task_id = ANY ($1::uuid[]))

-- name: gates
-- A gate shows the message of its latest failure. A message that an older version stored is found by its start.
-- 1 ids
UPDATE /*schema*/gate
SET state = jsonb_set(state::jsonb, '{message}', '"(forgotten)"')::text
WHERE state::json ->> 'message_task_id' = ANY ($1::uuid[]::text[])
    OR (
        state::json ->> 'message' NOT IN ('', '(forgotten)')
        AND EXISTS (
            SELECT 1
            FROM /*schema*/attempt AS a
            WHERE a.task_id = ANY ($1::uuid[])
                AND starts_with(a.message, state::json ->> 'message')
        )
    )

-- name: keys
-- 1 ids
DELETE FROM /*schema*/key
WHERE task_id = ANY ($1::uuid[])

-- name: ticks
-- 1 ids
UPDATE /*schema*/tick
SET task_id = NULL
WHERE task_id = ANY ($1::uuid[])

-- name: permits
-- 1 ids
DELETE FROM /*schema*/permit
WHERE task_id = ANY ($1::uuid[])

-- name: batches
-- 1 ids
UPDATE /*schema*/enqueue_batch
SET refused_key = '(forgotten)'
WHERE refused_for = ANY ($1::uuid[])

-- name: cached
-- Results that other tasks with the same content get.
-- 1 ids
DELETE FROM /*schema*/cached_result
WHERE task_id = ANY ($1::uuid[])

-- name: letters
-- 1 ids
DELETE FROM /*schema*/operation_task
WHERE task_id = ANY ($1::uuid[])

-- name: reasons
-- The reasons that people wrote in the audit log about these tasks. The record of who did what is kept.
-- 1 ids as a JSON array of texts
UPDATE /*schema*/audit
SET why = '(forgotten)'
WHERE why NOT IN ('', '(forgotten)')
    AND target IN (SELECT jsonb_array_elements_text($1::jsonb))

-- name: notices
-- 1 ids as a JSON array of texts
DELETE FROM /*schema*/alert_notice
WHERE about IN (SELECT jsonb_array_elements_text($1::jsonb))

-- name: tenant_keys
-- 1 tenant
DELETE FROM /*schema*/key
WHERE tenant = $1

-- name: tenant_counters
-- 1 tenant
DELETE FROM /*schema*/rollup_tenant
WHERE tenant = $1

-- name: tenant_tally
-- 1 tenant
UPDATE /*schema*/tally
SET tenant = ''
WHERE tenant = $1

-- name: tenant_tokens
-- 1 tenant
DELETE FROM /*schema*/token
WHERE tenant = $1

-- name: tenant_events
-- 1 tenant
DELETE FROM /*schema*/event
WHERE tenant = $1

-- name: tenant_cached
-- 1 tenant
DELETE FROM /*schema*/cached_result
WHERE tenant = $1

-- name: tenant_letters
-- 1 tenant
DELETE FROM /*schema*/operation_task
WHERE tenant = $1

-- name: tenant_audit
-- 1 tenant
UPDATE /*schema*/audit
SET
    tenant = CASE tenant WHEN $1 THEN '(forgotten)' ELSE tenant END,
    target = CASE target WHEN $1 THEN '(forgotten)' ELSE target END,
    why = CASE why WHEN '' THEN '' ELSE '(forgotten)' END
WHERE tenant = $1
    OR target = $1

-- name: tenant_map_counts
-- 1 tenant
DELETE FROM /*schema*/map_deleted
WHERE map_id IN (SELECT id FROM /*schema*/map WHERE tenant = $1)

-- name: tenant_maps
-- 1 tenant
DELETE FROM /*schema*/map
WHERE tenant = $1

-- name: tenant_operations
-- 1 tenant, 2 the same inside JSON
DELETE FROM /*schema*/operation
WHERE tenant = $1
    OR strpos(filter, $2) > 0

-- name: tenant_schedules
-- 1 the tenant as a member of JSON
DELETE FROM /*schema*/schedule
WHERE strpos(task, $1) > 0

-- name: tenant_notices
-- 1 the tenant inside JSON
DELETE FROM /*schema*/alert_notice
WHERE strpos(body, $1) > 0

-- name: tenant_alerts
-- 1 tenant
DELETE FROM /*schema*/alert_episode
WHERE subject = $1
    OR strpos(detail, $1) > 0

-- name: tenant_marks
-- 1 tenant
UPDATE /*schema*/failure_mark
SET note = '(forgotten)'
WHERE strpos(note, $1) > 0
