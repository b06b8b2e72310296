"""Verifiers: verdicts of programs on completions. Torch-free, usable with any trainer.

    from grpo_verifiers import build
    maths = build("math")
    maths.verify("so it is \\boxed{42}", {"answer": "42"})   # Verdict(outcome=right, score=1.0, …)

`build(kind, **options)` makes a verifier; `as_reward(verifier)` turns it into a reward function for TRL.
"""

from grpo_verifiers.registry import KINDS, build, register
from grpo_verifiers.reward import as_reward
from grpo_verifiers.verdict import Outcome, Verdict
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Unavailable, Verifier

__version__ = "0.2.1"

__all__ = [
    "KINDS",
    "BadGold",
    "BadOption",
    "Outcome",
    "Sample",
    "Unavailable",
    "Verdict",
    "Verifier",
    "as_reward",
    "build",
    "register",
]
