-- What finished and scheduled jobs leave behind: rows of the log; a row of the queue that is not due for long.
INSERT INTO pgqueuer_log (created, job_id, status, priority, entrypoint, aggregated)
SELECT now() - interval '1 day', -i, status, 0, 'noop', true
FROM generate_series(1, :finished) AS i, unnest('{queued,picked,successful}'::pgqueuer_status[]) AS status;
INSERT INTO pgqueuer (execute_after, status, entrypoint, payload, priority)
SELECT now() + interval '30 days', 'queued', 'noop', '0', 0
FROM generate_series(1, :scheduled) AS i;
