"""Environments in which a model acts turn by turn: their protocol, and the killable worker processes that run them. No
torch, no tokens."""
