"""The SQLite back end: one file, one writer thread per process, group commits."""
