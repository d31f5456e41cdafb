"""A campaign's folder: what was asked, its rows, their schema, who leads it."""
