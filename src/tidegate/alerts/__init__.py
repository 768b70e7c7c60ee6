"""Alerts: rules about numbers in the store, with one message when a condition begins and one when it ends.

`observation` holds the numbers, `rules` says what each rule measures, and `episodes` decides which alerts
open and end; these three are pure. `reading` reads the numbers, `evaluation` makes a pass, `delivery` sends
what a pass stored, `task_messages` adds messages about final tasks, and `sinks/` has one file for each way to
send it.
"""
