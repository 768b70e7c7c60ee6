"""The HTTP API under load: the sites that are measured, and the process that asks them."""
