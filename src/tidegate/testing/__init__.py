"""What tests and demos need: a simulated provider, a history checker."""
