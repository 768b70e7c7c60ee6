"""Use Tidegate inside web frameworks. Each module needs only its own framework."""
