"""All rules that find problems in a run, while it goes on and afterwards. Nothing here draws."""
