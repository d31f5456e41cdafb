"""The project's own client."""
