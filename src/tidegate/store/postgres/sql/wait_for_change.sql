-- wait_for_change: hints that something was committed. Never part of what they tell of: a transaction that notifies
-- takes a lock of the whole database from its commit to the flush, so that such commits queue up one by one.

-- name: hint
-- A transaction of its own, which may be lost and so waits for no disk. Channel and schema have one name.
-- 1 channel
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')

-- name: is_listening
-- Whether this very connection still listens: one that the network forgot does not answer.
-- 1 channel
SELECT 1
FROM pg_listening_channels() AS channel
WHERE channel = $1
