-- Finished tasks are rows of the archive, with their payloads; scheduled ones wait apart from the ready.
INSERT INTO payload (id, args) SELECT -i, '{"number": 0}' FROM generate_series(1, :finished + :scheduled) AS i;
INSERT INTO archive (id, state, finished_at) SELECT -i, 1, now() FROM generate_series(1, :finished) AS i;
INSERT INTO waiting (id, due_at)
SELECT -i, now() + interval '30 days' FROM generate_series(:finished + 1, :finished + :scheduled) AS i;
