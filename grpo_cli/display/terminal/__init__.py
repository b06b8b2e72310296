"""Painting frames on a terminal, keys, and keeping other output off it."""
