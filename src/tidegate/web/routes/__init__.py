"""The routes of the API, a subject a file. Each file's `add` registers its routes."""
