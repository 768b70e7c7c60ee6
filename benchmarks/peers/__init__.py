"""Tidegate compared with other queues: the same work in the same run, each set up as its manual advises.

One file per queue, in a folder for each store. They run in their own processes and environment. Neither the
product nor the harness imports them.
"""
