"""What runs inside a lane. Imports only the standard library and itself: the parent package is not loaded there."""
