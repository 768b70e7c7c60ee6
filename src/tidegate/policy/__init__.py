"""Decides about tasks: what a failure means, whether to retry, which task goes first. One subject per module.

Pure: no I/O, and the time and random numbers are passed in. The rules of limits and gates are in `limits/`.
"""
