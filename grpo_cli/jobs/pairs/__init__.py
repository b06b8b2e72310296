"""`grpo pairs`: judged samples, read or newly drawn, become pairs of a right and a wrong answer."""
