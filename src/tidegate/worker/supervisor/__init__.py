"""The supervisor: starts pool processes, keeps their leases, sees to their ends. Runs no user code."""
