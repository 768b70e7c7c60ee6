-- Finished jobs stay in the table of all jobs, with an event for each of their steps. Triggers are off meanwhile.
SET session_replication_role = replica;
INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)
SELECT 'default', 'noop', '{"number": 0}', 'succeeded', 1
FROM generate_series(1, :finished) AS i;
INSERT INTO procrastinate_events (job_id, type)
SELECT id, type
FROM procrastinate_jobs, unnest('{deferred,started,succeeded}'::procrastinate_job_event_type[]) AS type
WHERE status = 'succeeded';
INSERT INTO procrastinate_jobs (queue_name, task_name, args, scheduled_at)
SELECT 'default', 'noop', '{"number": 0}', now() + interval '30 days'
FROM generate_series(1, :scheduled) AS i;
RESET session_replication_role;
