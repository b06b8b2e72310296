"""What needs computer algebra, in a child process that can be killed."""
