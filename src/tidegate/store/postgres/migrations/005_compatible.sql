-- 005: compatible: which versions may work with a schema newer than theirs.
-- Locks: none; a new table of one row. Safe beside workers of the version before, which do not look at it: they
-- refuse to start on a newer schema.

-- Read by processes that find migrations they do not know. A later migration that breaks older code says so here:
-- UPDATE /*schema*/compatible SET since = its number. One that only adds what older code need not know leaves it
-- alone.
CREATE TABLE /*schema*/compatible (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    since integer NOT NULL               -- the lowest migration a process must know to work here
);
INSERT INTO /*schema*/compatible (since) VALUES (5);
