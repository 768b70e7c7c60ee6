"""Queues on SQLite, one a file."""
