"""The only home of rules: what is remarkable in a run, while it goes and afterwards. Nothing here draws."""
