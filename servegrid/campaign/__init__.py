"""A campaign's folder: its options, its rows, their schema, the process that leads it."""
