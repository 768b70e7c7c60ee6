"""The test kit: an application's own store for each test, its clock, and what its tasks did."""
