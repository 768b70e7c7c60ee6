"""Reads the errors, headers and usage of AI providers. No SDK is imported and nothing is called.

`packs/` has what is special about each provider. The other modules read responses and exceptions in general;
`understand.py` is the entry point for errors, `waits.py` for waits, `limits.py` for limits in headers.
"""
