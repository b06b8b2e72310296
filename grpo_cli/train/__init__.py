"""The loop: step.py reads top to bottom; trainer.py is the seam to TRL."""
