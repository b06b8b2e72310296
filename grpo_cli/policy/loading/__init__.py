"""A model's files and what they hold, before any library loads them, and a library's failures in one sentence."""
