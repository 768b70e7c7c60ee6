"""The code that the command line, the HTTP API and the Python API share; most of it serves operators."""
