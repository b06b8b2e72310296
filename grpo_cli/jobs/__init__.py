"""One folder or module for the work of each command, which `commands/` parses. Jobs never import each other, only
`open_job` and lower layers."""
