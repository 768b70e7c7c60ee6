"""Tidegate beside other queues: the same work, in the same run, each set as its own manual says is fast.

One file a queue, in a folder for each store. They run in processes and in an environment of their own and
are never imported by the product, nor by what measures them.
"""
