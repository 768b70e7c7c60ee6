"""One file a figure. Each has `measure(settings)`, which returns its lines of the table."""
