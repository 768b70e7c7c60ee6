"""What operators do, written once: the command line, the HTTP API and `app.admin` all work by this code."""
