"""The HTTP transport for clients of `httpx2` and `httpx`: it gets and settles a permit for each request."""
