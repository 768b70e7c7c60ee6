"""Schedules: what an application declares, and how due ticks become tasks. The rules are in `policy`.

`options` reads what users write, `declared` is the set of schedules that an application declares, `firing` is
the maintenance job that fires due ticks.
"""
