"""Prefixes of earlier samples, taken up where the policy still agrees (SPEC-RL)."""
