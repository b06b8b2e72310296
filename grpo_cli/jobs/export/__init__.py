"""`grpo export`: a checkpoint as a folder that other programs open."""
