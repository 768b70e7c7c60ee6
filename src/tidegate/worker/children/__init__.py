"""Child slots: warm processes that run one task at a time each, and can be killed with all they started."""
