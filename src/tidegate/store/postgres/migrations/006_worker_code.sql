-- 006: worker code: which version of the code each worker process has loaded, so that old and new code can tell each
-- other apart while a deploy goes on.
-- Locks: none that matter, because the column has a constant default. Older code works with this schema.

ALTER TABLE /*schema*/worker ADD COLUMN code text COLLATE "C" NOT NULL DEFAULT '';  -- a hash of its functions; empty: not known yet
