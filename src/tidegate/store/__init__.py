"""Stores of tasks: `protocol.py` defines what a store does, and each back end has a folder of its own."""
