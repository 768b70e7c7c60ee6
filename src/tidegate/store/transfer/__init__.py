"""Transfer the tasks of a SQLite file to a PostgreSQL database, with their history."""
