"""Housekeeping: promote, reap, retention. Each duty is safe on every machine at once."""
