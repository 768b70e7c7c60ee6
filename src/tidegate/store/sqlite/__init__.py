"""The SQLite back end: one file, one writer thread a process, group commit."""
