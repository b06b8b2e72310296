"""Which rows come next: orders, strategies, what is known of each row, groups drawn again. No trainer, no model."""
