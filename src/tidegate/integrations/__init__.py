"""Tidegate inside other frameworks. Each module needs its framework, and nothing here imports another."""
