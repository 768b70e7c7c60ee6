"""`python -m tidegate.cli`, for where the `tidegate` script is not on the path."""

from tidegate.cli import main

main()
