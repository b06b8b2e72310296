"""What a frame says, as lines; a pure function of the state."""
