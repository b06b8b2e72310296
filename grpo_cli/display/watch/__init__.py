"""A run seen from another process."""
