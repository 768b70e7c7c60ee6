"""What happened, told to whoever listens: logs, drain estimates."""
