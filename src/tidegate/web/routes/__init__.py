"""The routes of the API, a subject a file. Each file's `add_routes` registers its routes."""
