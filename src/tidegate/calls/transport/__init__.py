"""The HTTP transport for clients of `httpx2` and `httpx`: each request needs a permit and reports its end."""
