"""Code verifiers held to one tier of isolation, and what one says of a solution."""

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


def score(verifier: CodeVerifier, entry: str, code: str, tests: str) -> float | None:
    """The score of a solution by a test program; there has to be a verdict."""
    verdict = verifier.verify(code, {"entry_point": entry, "tests": tests})
    assert verdict.outcome != "error", verdict
    return verdict.score
