"""The content of a frame, as lines; a pure function of the state."""
