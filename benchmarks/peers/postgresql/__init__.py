"""Queues on PostgreSQL, one a file."""
