-- 023: how many slots a worker may grow to, so that nobody is warned of too few slots that will grow.
-- Locks: a moment; the column has no default that must be written.
-- Older code runs on, and leaves the column empty: its slots do not grow.

ALTER TABLE /*schema*/worker ADD COLUMN most_slots INTEGER;
