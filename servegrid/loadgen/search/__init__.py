"""Which points are measured, and which setting is best."""
