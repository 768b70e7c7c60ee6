"""Where sync code and the event loop meet: sync callers of async code, and blocking calls in threads."""
