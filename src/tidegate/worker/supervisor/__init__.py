"""The supervisor: starts pool processes, renews their leases, and handles their ends. Runs no user code."""
