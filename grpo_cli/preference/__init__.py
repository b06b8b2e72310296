"""Preferences from verified samples: which answers make a pair, and what the pairs of a file are worth. No torch."""
