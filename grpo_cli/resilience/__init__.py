"""Surviving faults: checkpoints, exact resume, signals, heartbeats, one writer a folder."""
