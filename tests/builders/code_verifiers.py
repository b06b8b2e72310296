"""A code verifier held to one tier of isolation."""

from __future__ import annotations

from grpo_verifiers.program import CodeOptions, CodeVerifier
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.lanes import Lanes


def in_tier(name: str) -> CodeVerifier:
    """One lane in this tier, which has to be there."""
    made = CodeVerifier(CodeOptions(lanes=1))
    tier = tiers.try_tier(name)
    assert isinstance(tier, tiers.Tier), tier
    made.tier, made._lanes = tier, Lanes(name, 1)
    return made
