"""The wall between a test program (`trial`, with what it holds of the solution) and the solution that it tests (`solution`)."""
