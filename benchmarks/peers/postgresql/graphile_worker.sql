-- Finished jobs are deleted, so none of the :finished is left; scheduled ones stand among the others.
INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('noop') ON CONFLICT DO NOTHING;
INSERT INTO graphile_worker._private_jobs (task_id, payload, run_at)
SELECT tasks.id, '{"number": 0}', now() + interval '30 days'
FROM generate_series(1, :scheduled), graphile_worker._private_tasks AS tasks
WHERE tasks.identifier = 'noop';
