-- wait_for_change: send hints that something was committed. A hint is never sent in the transaction it is about: a
-- transaction with NOTIFY locks the whole database from its commit to the flush, so such commits run one by one.

-- name: hint
-- A separate transaction. It may be lost, so it does not wait for the disk. Channel and schema have the same name.
-- 1 channel
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')

-- name: is_listening
-- Whether this connection still listens. A connection that the network has dropped does not answer.
-- 1 channel
SELECT 1
FROM pg_listening_channels() AS channel
WHERE channel = $1
