"""The HTTP transport for clients of `httpx2` and `httpx`: a permit for each request, and its end reported."""
