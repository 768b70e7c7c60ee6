"""Values and the state table. No I/O, no clock, no randomness but what is passed in."""
