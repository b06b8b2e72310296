"""Preferences from verified samples: making pairs of answers, and summarising the pairs of a file. No torch."""
