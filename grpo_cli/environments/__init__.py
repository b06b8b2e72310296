"""Worlds that a model acts in turn by turn: what one is, and the killable workers in which it runs. No torch, no tokens."""
