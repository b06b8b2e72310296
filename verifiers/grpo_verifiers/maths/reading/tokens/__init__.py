"""What a text is cut into, and how a run of letters is cut."""
