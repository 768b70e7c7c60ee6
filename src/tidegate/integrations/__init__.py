"""Use Tidegate with web frameworks, Sentry and logging. Each module needs only its own library."""
