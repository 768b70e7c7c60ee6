"""Alerts: rules over numbers of the store, with one message when a condition begins and one when it ends.

`observation` has the numbers, `rules` says what is measured, and `episodes` decides what opens and ends;
these three are pure. `reading` reads the numbers, `evaluation` makes a pass, `delivery` sends what a pass
stored, `task_messages` adds messages about final tasks, and `sinks/` has one file for each way to send it.
"""
