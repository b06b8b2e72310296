"""`grpo doctor`, the looking: what is wrong with a finished or running run, and with this machine. Pure but for reading files."""
