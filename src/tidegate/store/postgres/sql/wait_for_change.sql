-- wait_for_change: send hints that something was committed. A hint is never sent in the transaction that it is about: a
-- transaction with NOTIFY locks the whole database from its commit to the flush, so such commits run one by one.

-- name: hint
-- Run this in a separate transaction. A hint may be lost, so the commit does not wait for the disk. Channel and schema
-- have the same name.
-- 1 channel
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')

-- name: is_listening
-- Whether this connection still listens. A connection that the network has dropped does not answer.
-- 1 channel
SELECT 1
FROM pg_listening_channels() AS channel
WHERE channel = $1
