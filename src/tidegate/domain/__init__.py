"""Plain values, how options are read, and the table of task states.

No I/O; the time and random numbers are passed in.
"""
