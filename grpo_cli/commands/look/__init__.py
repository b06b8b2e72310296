"""Commands that look at runs: watch, report, doctor, explain."""
