"""What lets a run survive: checkpoints, exact resume, signals, heartbeats, one writer a folder."""
