"""Commands that do the work: train, eval, verify, probe, check, audit. They parse, call a job and print."""
