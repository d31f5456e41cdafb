"""The command `servegrid`: one module a group of commands."""
