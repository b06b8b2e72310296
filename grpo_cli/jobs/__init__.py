"""One room for each command's work: what `commands/` parses, a job does. Jobs never import each other, only `open_job` and what lies below."""
