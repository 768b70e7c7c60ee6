"""Runs the command line as `python -m tidegate.cli`, if the `tidegate` script is not on the path."""

from tidegate.cli import main

main()
