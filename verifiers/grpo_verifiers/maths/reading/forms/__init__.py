"""Answers in forms that the grammar does not know: prose, residue classes, ranges in words, compound quantities."""
