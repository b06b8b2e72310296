"""The work of the process that runs computer algebra, with sympy loaded before any worker is forked.

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
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for stream in (1, 2):  # neither warns a user of what a completion says
            os.dup2(nowhere.fileno(), stream)
    logging.disable(logging.CRITICAL)
    # sympy recurses deeper than its expressions are
    sys.setrecursionlimit(3_000)
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
    return settle, None


def settle(task: tuple[Any, bool]) -> str:
    """`s`: all pairs are proved equal, `n`: some are not equal, `u`: unproved; the fields of a `ProofTask`.

    Raises:
        MemoryError: the worker has no more; it gives way to a fresh one.
    """
    from grpo_verifiers.maths.proving.symbolic import prove

    pairs, log10 = task
    found: set[bool | None] = set()
    for gold, answer in pairs:
        try:
            proof = prove(gold, answer, log10)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - computer algebra raises anything; then it has proved nothing
            proof = None
        if proof is False:
            return "n"
        found.add(proof)
    return "u" if None in found else "s"
