"""Chooses the next rows: orders, strategies, the history of each row, resampling of groups. No trainer, no model."""
