"""Comparing what the grammar does not know alone: statements, residue classes, solutions by name, renamed parameters."""
