"""Residue classes: `4 (mod 9)`, `x ≡ 2, 5 (mod 7)`, `17 mod 5 = 2`. Read here, computed where they are compared.

A tree is `("congruence", joiner, clauses)`, a clause `(sides, residues, modulus, after)`: what stands before the last sign of
congruence, the residues, the modulus, and what an equals sign behind the modulus gives.
"""

from __future__ import annotations

from typing import NamedTuple

from grpo_verifiers.maths.reading.reader import read
from grpo_verifiers.maths.reading.tokens.token import Token, Unreadable
from grpo_verifiers.maths.reading.tree import Node

MARKS = frozenset(("pmod", "bmod", "mod", "pod"))
_SIGNS = frozenset(("=", "equiv"))
_JOINERS = frozenset((",", ";", "or", "and"))


class Clause(NamedTuple):
    """One congruence."""

    sides: tuple[Node, ...]
    residues: tuple[Node, ...]
    modulus: Node
    after: Node | None


def read_residues(tokens: list[Token]) -> Node | None:
    """The residue classes a token list names, or None if it is something else."""
    clauses: list[Clause] = []
    joiner, at = "", 0
    try:
        while at < len(tokens):
            if clauses:
                joined = {t.value for t in tokens[at : at + 2]} & _JOINERS
                if not joined:
                    return None
                while at < len(tokens) and tokens[at].value in _JOINERS:
                    joiner = tokens[at].value if tokens[at].value in ("or", "and") else joiner
                    at += 1
            clause, at = _clause(tokens, at)
            clauses.append(clause)
    # an index beyond the end is a clause that was cut off
    except (Unreadable, RecursionError, IndexError):
        return None
    return ("congruence", joiner or ",", tuple(tuple(clause) for clause in clauses)) if clauses else None


def _clause(tokens: list[Token], start: int) -> tuple[Clause, int]:
    mark = start
    while tokens[mark].value not in MARKS:
        mark += 1
    before = tokens[start:mark]
    bracketed = bool(before) and before[-1].value == "(" and before[-1].kind == "o"
    # `4 (mod 9)`: the bracket belongs to the modulus
    if bracketed:
        before.pop()
    modulus, at = _modulus(tokens, mark + 1, bracketed)
    sides = _split(before, _SIGNS)
    after = None
    if at < len(tokens) and tokens[at].value in _SIGNS:
        end = at + 1
        while end < len(tokens) and tokens[end].value not in _JOINERS:
            end += 1
        after, at = read(tokens[at + 1 : end]), end
    residues = tuple(read(part) for part in _split(sides[-1], _JOINERS))
    return Clause(tuple(read(side) for side in sides[:-1]), residues, modulus, after), at


def _modulus(tokens: list[Token], at: int, bracketed: bool) -> tuple[Node, int]:
    opener = tokens[at].value
    if opener in ("{", "(") and not bracketed:
        end = at + 1
        closer = "}" if opener == "{" else ")"
        while tokens[end].value != closer:
            end += 1
        return read(tokens[at + 1 : end]), end + 1
    if bracketed:
        end = at
        while tokens[end].value != ")":
            end += 1
        return read(tokens[at:end]), end + 1
    return read(tokens[at : at + 1]), at + 1


def _split(tokens: list[Token], marks: frozenset[str]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.value in marks and token.kind in ("o", "c", "w"):
            parts.append([])
        else:
            parts[-1].append(token)
    found = [part for part in parts if part]
    if not found:
        raise Unreadable("no residue")
    return found
