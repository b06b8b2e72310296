"""Rows that repeat each other, and held-out rows that the training rows contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_cli.data.overlap import THRESHOLD, Corpus, Pair
from grpo_cli.data.rows import Row
from grpo_cli.jobs.check.findings import CheckFinding, Level

SHOWN = 3


def check_likeness(train: Sequence[Row], held_out: Sequence[Row] | None, seen: str) -> Iterator[CheckFinding]:
    """Duplicates in the training rows, and overlap with the held-out ones; `seen` names the rows that were looked at."""
    corpus = Corpus(train)
    pairs = corpus.duplicates()
    exact, near = _split(pairs)
    data = {"rows": len(train), "exact": len(exact), "near": len(near), "threshold": THRESHOLD}
    if pairs:
        yield CheckFinding(
            "duplicates",
            Level.NOTE,
            f"{_counts(pairs)} of {seen}",
            _lines(near),
            data,
        )
    else:
        yield CheckFinding("duplicates", Level.OK, f"none in {seen}", data=data)
    if held_out is None:
        yield CheckFinding(
            "overlap",
            Level.NOTE,
            "no held-out rows: gains will be seen on training rows only",
            hint="add `data.eval`",
        )
        return
    pairs = corpus.overlap(held_out)
    exact, near = _split(pairs)
    data = {"held_out": len(held_out), "exact": len(exact), "near": len(near), "threshold": THRESHOLD}
    if pairs:
        yield CheckFinding(
            "overlap",
            Level.WARN,
            f"{_counts(pairs)} of {len(held_out):,} held-out rows stand among {seen}",
            _lines(exact or near),
            data,
            hint="leave them out of one side, or held-out scores measure memory",
        )
    else:
        yield CheckFinding(
            "overlap",
            Level.OK,
            f"none of {len(held_out):,} held-out rows stands among {seen}",
            data=data,
        )


def _split(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    return [p for p in pairs if p.similarity == 1.0], [p for p in pairs if p.similarity < 1.0]


def _counts(pairs: Sequence[Pair]) -> str:
    exact, near = _split(pairs)
    parts = [f"{len(exact):,} exact"] * bool(exact) + [f"{len(near):,} near"] * bool(near)
    return " and ".join(parts)


def _lines(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return tuple(f"{p.second.place} is {p.similarity:.0%} like {p.first.place}" for p in pairs[:SHOWN])
