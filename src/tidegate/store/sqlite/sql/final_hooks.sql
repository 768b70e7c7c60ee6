-- final_hooks: what is enqueued when tasks reach a final state.

-- name: hooks
-- 1 ids: carray of 16-byte ids
SELECT t.id, t.function, t.queue, t.tenant, t.on_final, t.labels
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
WHERE t.on_final IS NOT NULL
