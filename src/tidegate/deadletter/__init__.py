"""Dead letters: search, redrive, purge."""
