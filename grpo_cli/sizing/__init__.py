"""What a run will take of a named card: memory, hours, money. Sums over the shapes of a model; no torch."""
