"""The work of the process that runs computer algebra, with sympy and math-verify loaded before any worker is forked.

Nothing here trusts its time or memory: `prover` says what a case may use, and the pool kills and caps.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any


def load(config: object) -> tuple[Callable[[Any], str], None]:
    """The task of a pool: all that takes long to import, tried once, so that its caches are warm in every worker."""
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):  # neither warns a user of what a completion says
            os.dup2(nowhere.fileno(), stream)
    logging.disable(logging.CRITICAL)
    # sympy recurses deeper than its expressions are
    sys.setrecursionlimit(3_000)
    import math_verify  # noqa: F401 - loaded once, before any fork

    from grpo_verifiers.maths.proving.symbolic import prove
    from grpo_verifiers.maths.reading.tree import number

    two: Any = ("root", number(2), number(2))
    x: Any = ("s", "x")
    prove(("/", two, number(2)), ("/", number(1), two), False)
    prove(
        ("f", "sin", (("*", number(2), x),)),
        ("*", number(2), ("*", ("f", "sin", (x,)), ("f", "cos", (x,)))),
        False,
    )
    _by_math_verify("x+1", "1+x")
    return settle, None


def settle(task: tuple[Any, str, str, bool]) -> str:
    """`s` proved by sympy, `m` by math-verify, `n` not proved; the fields of a `ProofTask`.

    Raises:
        MemoryError: the worker has no more; it gives way to a fresh one.
    """
    from grpo_verifiers.maths.proving.symbolic import prove

    pairs, gold, answer, log10 = task
    try:
        proofs = [prove(g, a, log10) for g, a in pairs]
        if all(proofs):
            return "s"
        if False in proofs:  # sixty digits tell them apart: math-verify, which compares fewer, is not asked
            return "n"
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - computer algebra raises anything; the last tier still has its say
        pass
    try:
        return "m" if _by_math_verify(gold, answer) else "n"
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - as above, and the answer is simply not proved
        return "n"


def _by_math_verify(gold: str, answer: str) -> bool:
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    sides = [
        parse(
            "\\boxed{" + text + "}",
            extraction_config=config,
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        for text in (gold, answer)
    ]
    return bool(all(sides) and verify(sides[0], sides[1], strict=True, timeout_seconds=None))
