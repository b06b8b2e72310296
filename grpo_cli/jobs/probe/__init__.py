"""What samples of a model say about training it, before a step is made: pure, no torch. Sampling is in `train/probing.py`."""
