"""Several processes: launching, ranks, peers that are lost, signals, sharded weights."""
