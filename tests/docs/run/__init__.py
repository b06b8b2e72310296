"""What the pages say, done: their blocks in order, and tiny runs of every command. `make test-docs`."""
