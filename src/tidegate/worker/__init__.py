"""Runs tasks: supervisor, pool processes, child processes, maintenance."""
