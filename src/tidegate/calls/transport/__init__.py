"""The transport for clients of `httpx2` and `httpx`: each request waits for a permit and reports its end."""
