-- Finished jobs stay in the table of all jobs for seven days; so do scheduled ones until they are due.
INSERT INTO pgboss.job (name, data, state, policy, started_on, completed_on)
SELECT 'noops', '{"number": 0}', 'completed', 'standard', now(), now()
FROM generate_series(1, :finished) AS i;
INSERT INTO pgboss.job (name, data, policy, start_after, keep_until)
SELECT 'noops', '{"number": 0}', 'standard', now() + interval '30 days', now() + interval '60 days'
FROM generate_series(1, :scheduled) AS i;
