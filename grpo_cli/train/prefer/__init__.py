"""Learning from pairs: a step's verified samples, made into pairs, go through one of TRL's preference trainers."""
