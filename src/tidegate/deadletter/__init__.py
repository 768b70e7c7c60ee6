"""Redrives many dead letters: a canary first, then small batches, advanced by maintenance.

`policy/` makes the decisions and is pure. `runner` takes one step of each operation at a time. All state is
in the store, so any process may take the next step.
"""
