"""The internals of an application: its declarations, its store, and how its tasks are stored. Not public.

`core_of(app)` of `tidegate.internals` leads from an application to its `Core`.
"""
