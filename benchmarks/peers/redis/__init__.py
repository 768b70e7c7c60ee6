"""Queues on Redis, one a file."""
