"""Estimates memory, hours and money of a run on a named GPU, from the shapes of a model; no torch."""
