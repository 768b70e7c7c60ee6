"""Claims tasks, runs them and finishes them: what happens inside a pool process."""
