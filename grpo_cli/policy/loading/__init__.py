"""Inspection of a model's files before a library loads them, and a library's failures as one sentence."""
