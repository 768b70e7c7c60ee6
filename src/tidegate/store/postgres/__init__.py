"""The PostgreSQL back end, for any number of machines. SQL is in `sql/` and `migrations/`."""
