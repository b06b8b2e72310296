"""Several runs of one recipe: every combination of the values given, each with so many seeds; a table at the end."""
