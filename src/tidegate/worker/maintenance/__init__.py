"""Maintenance jobs: promote, reap, retention, capacity. Many machines may run them at the same time."""
