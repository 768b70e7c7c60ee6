"""The routes of the API, one file per subject. The `add_routes` of each file registers its routes."""
