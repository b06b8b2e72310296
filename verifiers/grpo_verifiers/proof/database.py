"""Metamath databases: what is declared, and the axioms of propositional logic that rows need not bring."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

PROPOSITIONAL = """
$c ( ) -> -. wff |- $.
$v ph ps ch th $.
wph $f wff ph $.
wps $f wff ps $.
wch $f wff ch $.
wth $f wff th $.
wn $a wff -. ph $.
wi $a wff ( ph -> ps ) $.
ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
ax-2 $a |- ( ( ph -> ( ps -> ch ) ) -> ( ( ph -> ps ) -> ( ph -> ch ) ) ) $.
ax-3 $a |- ( ( -. ph -> -. ps ) -> ( ps -> ph ) ) $.
${
  min $e |- ph $.
  maj $e |- ( ph -> ps ) $.
  ax-mp $a |- ps $.
$}
"""


Symbols = tuple[str, ...]


class BadDatabase(ValueError):
    """A database that cannot be read."""


@dataclass(frozen=True, slots=True)
class Floating:
    """`label $f kind variable $.`"""

    label: str
    kind: str
    variable: str
    is_outer: bool = True


@dataclass(frozen=True, slots=True)
class Essential:
    """`label $e statement $.`"""

    label: str
    statement: Symbols


@dataclass(frozen=True, slots=True)
class Assertion:
    """An axiom or theorem with its mandatory hypotheses and the pairs that must stay distinct.

    The hypotheses are in the order of the database, floating and essential ones mixed as they stand there: so they are
    taken from the stack.
    """

    label: str
    statement: Symbols
    hypotheses: tuple[Floating | Essential, ...]
    distinct: frozenset[tuple[str, str]]
    is_axiom: bool
    number: int

    @property
    def essential(self) -> tuple[Essential, ...]:
        """The essential hypotheses."""
        return tuple(h for h in self.hypotheses if isinstance(h, Essential))


@dataclass(frozen=True, slots=True)
class Database:
    """What a database declares."""

    constants: frozenset[str]
    variables: frozenset[str]
    floating: Mapping[str, Floating]
    assertions: Mapping[str, Assertion]


@dataclass(slots=True)
class _Scope:
    hypotheses: list[Floating | Essential] = field(default_factory=list)
    distinct: set[tuple[str, str]] = field(default_factory=set)


def without_comments(words: list[str]) -> Iterator[str]:
    """The words outside of comments."""
    inside = False
    for word in words:
        if word == "$(":
            inside = True
        elif word == "$)":
            inside = False
        elif not inside:
            yield word


@functools.lru_cache(maxsize=16)
def parse(text: str) -> Database:
    """Read a database; proofs of its theorems are taken as checked.

    Raises:
        BadDatabase: it breaks the grammar, or names a file.
    """
    words = iter(list(without_comments(text.split())))
    constants, variables = set[str](), set[str]()
    floating: dict[str, Floating] = {}
    assertions: dict[str, Assertion] = {}
    scopes = [_Scope()]
    label = ""
    for word in words:
        if word == "${":
            scopes.append(_Scope())
        elif word == "$}":
            if len(scopes) == 1:
                raise BadDatabase("`$}` without `${`")
            scopes.pop()
        elif word in ("$c", "$v"):
            (constants if word == "$c" else variables).update(_until(words, "$."))
        elif word == "$d":
            names = sorted(_until(words, "$."))
            scopes[-1].distinct |= {(a, b) for i, a in enumerate(names) for b in names[i + 1 :]}
        elif word in ("$f", "$e", "$a", "$p"):
            if not label or label in assertions or label in floating:
                raise BadDatabase(f"`{word}` needs a label of its own, not {label!r}")
            body = tuple(_until(words, "$=" if word == "$p" else "$."))
            if word == "$p":
                list(_until(words, "$."))
            if not body or body[0] not in constants:
                raise BadDatabase(f"`{label}` does not begin with a constant")
            if word == "$f":
                if len(body) != 2 or body[1] not in variables:
                    raise BadDatabase(f"`{label}` is no `kind variable`")
                floating[label] = Floating(label, body[0], body[1], len(scopes) == 1)
                scopes[-1].hypotheses.append(floating[label])
            elif word == "$e":
                scopes[-1].hypotheses.append(Essential(label, body))
            else:
                assertions[label] = _assertion(label, body, scopes, variables, word == "$a", len(assertions))
            label = ""
        elif word.startswith("$"):
            raise BadDatabase(f"`{word}` is not supported")
        else:
            if label:
                raise BadDatabase(f"two labels in a row: {label!r} {word!r}")
            label = word
    if len(scopes) != 1 or label:
        raise BadDatabase("it ends in the middle of a statement")
    return Database(frozenset(constants), frozenset(variables), floating, assertions)


def _until(words: Iterator[str], end: str) -> Iterator[str]:
    for word in words:
        if word == end:
            return
        yield word
    raise BadDatabase(f"`{end}` is missing")


def _assertion(
    label: str, body: Symbols, scopes: list[_Scope], variables: set[str], is_axiom: bool, number: int
) -> Assertion:
    found = [h for scope in scopes for h in scope.hypotheses]
    statements = [body, *(h.statement for h in found if isinstance(h, Essential))]
    used = {s for statement in statements for s in statement if s in variables}
    hypotheses = tuple(h for h in found if isinstance(h, Essential) or h.variable in used)
    if {h.variable for h in hypotheses if isinstance(h, Floating)} != used:
        raise BadDatabase(f"`{label}` has a variable without `$f`")
    distinct = frozenset(p for scope in scopes for p in scope.distinct if p[0] in used and p[1] in used)
    return Assertion(label, body, hypotheses, distinct, is_axiom, number)
