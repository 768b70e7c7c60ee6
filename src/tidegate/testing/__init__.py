"""Tools for tests and demos: a simulated provider, a history checker, virtual time and a demo."""
