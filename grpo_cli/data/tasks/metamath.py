"""A ladder of propositional theorems with proofs, for the verifier `metamath`: from one axiom to chains of inferences.

Levels: 0 an instance of an axiom · 1 one modus ponens from two hypotheses · 2 a chain of them · 3 identity · 4 syllogism ·
5 chain of syllogisms. Training and held-out statements differ: the first `test_size` different ones are held out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

OPTIONS = ("size", "test_size", "seed", "level", "depth")
LEVELS = 6
VARIABLES = ("ph", "ps", "ch", "th")
RULES = """Write a Metamath proof as a list of labels, in reverse Polish order, in a ```metamath block.
wph wps wch wth  push the wffs ph ps ch th
wn   wff A -> wff -. A
wi   wff A, wff B -> wff ( A -> B )
ax-1 wff A, wff B -> |- ( A -> ( B -> A ) )
ax-2 wff A, wff B, wff C -> |- ( ( A -> ( B -> C ) ) -> ( ( A -> B ) -> ( A -> C ) ) )
ax-3 wff A, wff B -> |- ( ( -. A -> -. B ) -> ( B -> A ) )
ax-mp wff A, wff B, |- A, |- ( A -> B ) -> |- B"""

Wff = str | tuple["Wff", ...]


@dataclass(frozen=True, slots=True)
class Theorem:
    """A statement with its hypotheses and a proof."""

    level: int
    statement: Wff
    hypotheses: tuple[Wff, ...]
    proof: tuple[str, ...]


def rows(
    split: str, size: int = 10_000, test_size: int = 512, seed: int = 1234, level: int = LEVELS, depth: int = 2
) -> Iterator[dict[str, Any]]:
    """`size` training rows, or the held-out ones; `level` is the number of levels that are mixed, `depth` the nesting
    of wffs.

    Columns question, statement, hypotheses, answer, level.
    """
    stream = _different(seed, max(1, min(level, LEVELS)), depth)
    if split == "test":
        return islice(stream, test_size)
    return islice(stream, test_size, test_size + size)


def _different(seed: int, levels: int, depth: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(seed)
    seen: set[tuple[Wff, tuple[Wff, ...]]] = set()
    misses = 0
    while misses < 1_000:
        theorem = make(draw, draw.randrange(levels), depth)
        key = (theorem.statement, theorem.hypotheses)
        # skip statements with a repeated hypothesis, or with a hypothesis equal to the statement
        hypotheses = theorem.hypotheses
        if key in seen or theorem.statement in hypotheses or len(set(hypotheses)) < len(hypotheses):
            misses += 1
            continue
        misses = 0
        seen.add(key)
        given = {f"h{i}": f"|- {text(h)}" for i, h in enumerate(hypotheses, 1)}
        statement = f"|- {text(theorem.statement)}"
        listed = "".join(f"\n{label}: {h}" for label, h in given.items())
        yield {
            "question": f"{RULES}\n\nProve {statement}" + (f" from{listed}" if listed else ""),
            "statement": statement,
            "hypotheses": given,
            "answer": " ".join(theorem.proof),
            "level": theorem.level,
        }


def text(wff: Wff) -> str:
    """As Metamath writes it."""
    if isinstance(wff, str):
        return wff
    return f"-. {text(wff[0])}" if len(wff) == 1 else f"( {text(wff[0])} -> {text(wff[1])} )"


def made(wff: Wff) -> tuple[str, ...]:
    """The steps that build a wff."""
    if isinstance(wff, str):
        return (f"w{wff}",)
    parts = tuple(step for part in wff for step in made(part))
    return (*parts, "wn" if len(wff) == 1 else "wi")


def make(draw: random.Random, level: int, depth: int) -> Theorem:
    """A theorem of a level."""
    a, b, c = (_wff(draw, depth) for _ in range(3))
    if level == 0:
        name, args, shape = draw.choice(
            [
                ("ax-1", (a, b), (a, (b, a))),
                ("ax-2", (a, b, c), ((a, (b, c)), ((a, b), (a, c)))),
                ("ax-3", (a, b), (((a,), (b,)), (b, a))),
            ]
        )
        return Theorem(0, shape, (), (*[s for arg in args for s in made(arg)], name))
    if level == 1:
        return Theorem(1, b, (a, (a, b)), _detach(a, b, ("h1",), ("h2",)))
    if level == 2:
        chain = [_wff(draw, depth - 1) for _ in range(draw.randint(3, 5))]
        steps: tuple[str, ...] = ("h1",)
        for i, (first, second) in enumerate(pairwise(chain), 2):
            steps = _detach(first, second, steps, (f"h{i}",))
        return Theorem(2, chain[-1], (chain[0], *pairwise(chain)), steps)
    if level == 3:
        # ( A -> A ) from ax-2 with B = ( A -> A ), and ax-1 twice
        same: Wff = (a, a)
        once: Wff = (a, same)
        twice: Wff = (a, (same, a))
        axiom_2 = (*made(a), *made(same), *made(a), "ax-2")
        axiom_1 = (*made(a), *made(same), "ax-1")
        step = _detach(twice, (once, same), axiom_1, axiom_2)
        return Theorem(3, same, (), _detach(once, same, (*made(a), *made(a), "ax-1"), step))
    if level == 4:
        return Theorem(4, (a, c), ((a, b), (b, c)), _syllogism(a, b, c, ("h1",), ("h2",)))
    chain = [_wff(draw, depth - 1) for _ in range(draw.randint(4, 5))]
    steps = ("h1",)
    for i in range(2, len(chain)):
        steps = _syllogism(chain[0], chain[i - 1], chain[i], steps, (f"h{i}",))
    return Theorem(5, (chain[0], chain[-1]), tuple(pairwise(chain)), steps)


def _wff(draw: random.Random, depth: int) -> Wff:
    if depth <= 0 or draw.random() < 0.35:
        return draw.choice(VARIABLES)
    if draw.random() < 0.25:
        return (_wff(draw, depth - 1),)
    return (_wff(draw, depth - 1), _wff(draw, depth - 1))


def _detach(a: Wff, b: Wff, minor: tuple[str, ...], major: tuple[str, ...]) -> tuple[str, ...]:
    return (*made(a), *made(b), *minor, *major, "ax-mp")


def _syllogism(a: Wff, b: Wff, c: Wff, first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """( A -> C ) from ( A -> B ) and ( B -> C ): put A before the second, distribute, detach the first."""
    inner: Wff = (b, c)
    lifted = _detach(inner, (a, inner), second, (*made(inner), *made(a), "ax-1"))
    spread = _detach((a, inner), ((a, b), (a, c)), lifted, (*made(a), *made(b), *made(c), "ax-2"))
    return _detach((a, b), (a, c), first, spread)
