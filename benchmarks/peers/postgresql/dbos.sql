-- Finished workflows stay in the table of all workflows, with their inputs and outputs; so do delayed ones.
CREATE TEMP TABLE old AS
SELECT i <= :finished AS is_finished, gen_random_uuid()::text AS id, (date_part('epoch', now()) * 1000)::bigint AS at
FROM generate_series(1, :finished + :scheduled) AS i;
INSERT INTO dbos.workflow_status (
    workflow_uuid, status, name, created_at, updated_at, completed_at, delay_until_epoch_ms, queue_name, priority,
    application_version, recovery_attempts
)
SELECT
    id, CASE WHEN is_finished THEN 'SUCCESS' ELSE 'DELAYED' END, 'noop', at, at,
    CASE WHEN is_finished THEN at END, CASE WHEN NOT is_finished THEN at + 2592000000 END, 'noops', 0,
    'bench', CASE WHEN is_finished THEN 1 ELSE 0 END
FROM old;
INSERT INTO dbos.workflow_input (workflow_uuid, inputs, retention_timestamp)
SELECT id, 'gASVCwAAAAAAAAB9lC4=', at FROM old;
INSERT INTO dbos.workflow_output (workflow_uuid, output, retention_timestamp)
SELECT id, 'gAROLg==', at FROM old WHERE is_finished;
DROP TABLE old;
