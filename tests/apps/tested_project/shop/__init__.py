"""A shop whose tasks are tested by `tidegate.testing`, with nothing but the installed package."""
