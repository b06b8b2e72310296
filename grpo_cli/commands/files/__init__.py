"""Commands that write a file: init, export, schema."""
