"""Maps: many tasks of one function that were enqueued as one. How they advance, and what is read of them.

A map has no counter. Its counts come from the states of its tasks, so retries, redrives and crashes
cannot make them wrong. Maintenance looks at these states to find out that all items are final.
"""
