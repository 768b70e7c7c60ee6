"""What each AI provider's errors, headers and usage mean, as domain values."""
