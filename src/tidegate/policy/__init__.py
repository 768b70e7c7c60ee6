"""Pure decisions, one subject a file. No I/O, no clock, no randomness but what is passed in."""
