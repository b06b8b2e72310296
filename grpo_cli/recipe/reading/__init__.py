"""From YAML and `--set` to values with line and column."""
