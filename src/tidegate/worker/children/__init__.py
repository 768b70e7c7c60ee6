"""Child processes: each runs one task at a time, stays warm, and can be killed with all it started."""
