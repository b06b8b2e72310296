"""What of the solution the test program sees: classes, objects, generators and values that stand for those over there."""
