"""Which cells there are, and why not others: pure."""
