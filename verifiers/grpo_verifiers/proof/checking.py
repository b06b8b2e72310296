"""Metamath: parses a database and checks a proof in it.

How this works: `parse` reads constants, variables, hypotheses and assertions; proofs inside a database are taken as checked.
`expanded` turns a compressed proof into labels. `check` replays the labels one substitution after another, within
bounds of steps and symbols, and raises where a step does not fit. `PROPOSITIONAL` holds the default axioms.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Database:
    """What a database declares."""

    constants: frozenset[str]
    variables: frozenset[str]
    floating: Mapping[str, Floating]
    assertions: Mapping[str, Assertion]


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
    # what each open block declares: hypotheses, and pairs that must stay distinct
    scopes: list[tuple[list[Floating | Essential], set[tuple[str, str]]]] = [([], set())]
    label = ""
    for word in words:
        if word == "${":
            scopes.append(([], set()))
        elif word == "$}":
            if len(scopes) == 1:
                raise BadDatabase("`$}` without `${`")
            scopes.pop()
        elif word in ("$c", "$v"):
            (constants if word == "$c" else variables).update(_until(words, "$."))
        elif word == "$d":
            names = sorted(_until(words, "$."))
            scopes[-1][1].update((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
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
                scopes[-1][0].append(floating[label])
            elif word == "$e":
                scopes[-1][0].append(Essential(label, body))
            else:
                known = [one for hypotheses, _ in scopes for one in hypotheses]
                statements = [body, *(one.statement for one in known if isinstance(one, Essential))]
                used = {symbol for statement in statements for symbol in statement if symbol in variables}
                mandatory = tuple(one for one in known if isinstance(one, Essential) or one.variable in used)
                if {one.variable for one in mandatory if isinstance(one, Floating)} != used:
                    raise BadDatabase(f"`{label}` has a variable without `$f`")
                pairs = frozenset(pair for _, distinct in scopes for pair in distinct if used.issuperset(pair))
                assertions[label] = Assertion(label, body, mandatory, pairs, word == "$a", len(assertions))
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


MOST_CHARS = 1 << 18
SAVE, SAVED = "$SAVE", "$SAVED"  # no label begins so


class BadProof(ValueError):
    """A proof that does not hold; the first argument is a reason code, the second a sentence."""


class ProofTooLong(ValueError):
    """A proof over the bounds of steps or length."""


@dataclass(frozen=True, slots=True)
class MetamathGoal:
    """A compiled row: what is to be proved, from what, with which labels."""

    database: str
    statement: Symbols
    hypotheses: tuple[Essential, ...]
    distinct: frozenset[tuple[str, str]]
    before: int | None
    allowed: frozenset[str] | None


def expanded(goal: MetamathGoal, words: Sequence[str]) -> list[str]:
    """The steps of a compressed proof: labels, `SAVE` and `SAVED 3`.

    Raises:
        BadProof: it does not follow the format.
    """
    if ")" not in words:
        raise BadProof("compressed", "`(` without `)`")
    end = list(words).index(")")
    database = parse(goal.database)
    used = {s for statement in (goal.statement, *(h.statement for h in goal.hypotheses)) for s in statement}
    mandatory = [f.label for f in database.floating.values() if f.is_outer and f.variable in used]
    labels = [*mandatory, *(h.label for h in goal.hypotheses), *words[1:end]]
    out, value = list[str](), 0
    for letter in "".join(words[end + 1 :]):
        if letter == "Z" and value == 0:
            out.append(SAVE)
        elif "U" <= letter <= "Y":
            value = value * 5 + ord(letter) - ord("T")
        elif "A" <= letter <= "T":
            place = value * 20 + ord(letter) - ord("A")
            out.append(labels[place] if place < len(labels) else f"{SAVED} {place - len(labels)}")
            value = 0
        else:
            raise BadProof("compressed", f"{letter!r} in a compressed proof")
        if value > MOST_CHARS:
            raise BadProof("compressed", "a step that is nowhere")
    return out


def check(goal: MetamathGoal, labels: Sequence[str], max_steps: int, max_symbols: int) -> None:
    """Replay a proof.

    Raises:
        BadProof: a step does not fit, or the end is not the statement.
        TooMuchWork: it is over a bound.
    """
    if len(labels) > max_steps:
        raise ProofTooLong("steps")
    database = parse(goal.database)
    given = {h.label: h.statement for h in goal.hypotheses}
    stack: list[Symbols] = []
    saved: list[Symbols] = []
    made = 0
    for position, label in enumerate(labels, 1):
        if label == SAVE:
            if not stack:
                raise BadProof("compressed", "`Z` before any step")
            saved.append(stack[-1])
            continue
        if label.startswith(SAVED):
            place = int(label[len(SAVED) :])
            if place >= len(saved):
                raise BadProof("compressed", "a step that is nowhere")
            stack.append(saved[place])
        elif label in given:
            stack.append(given[label])
        elif label in database.floating:
            stack.append((database.floating[label].kind, database.floating[label].variable))
        else:
            found = database.assertions.get(label)
            if found is None:
                raise BadProof("unknown_label", f"no `{label[:80]}` in the database")
            if goal.before is not None and found.number >= goal.before:
                raise BadProof("not_yet_proved", f"`{label}` is the theorem itself or comes after it")
            essential = [one.statement for one in found.hypotheses if isinstance(one, Essential)]
            is_itself = found.statement == goal.statement and essential == [one.statement for one in goal.hypotheses]
            if is_itself and not found.is_axiom:
                raise BadProof("not_yet_proved", f"`{label}` is the theorem itself")
            if goal.allowed is not None and label not in goal.allowed and found.statement[0] == "|-":
                raise BadProof("not_allowed", f"`{label}` is not on the list of what may be used")
            stack.append(_apply(found, stack, goal, database, max_symbols - made, position))
        made += len(stack[-1])
        if made > max_symbols:
            raise ProofTooLong("symbols")
    if len(stack) != 1:
        raise BadProof("stack", f"{len(stack)} statements are left at the end, not one")
    if stack[0] != goal.statement:
        raise BadProof("proves_other", f"proves `{' '.join(stack[0])[:200]}`")


def _apply(
    found: Assertion, stack: list[Symbols], goal: MetamathGoal, database: Database, left: int, position: int
) -> Symbols:
    """The assertion applied to the top of the stack, which it takes."""
    count = len(found.hypotheses)
    if len(stack) < count:
        raise BadProof("stack", f"step {position} `{found.label}` needs {count} statements, there are {len(stack)}")
    taken = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    put: dict[str, Symbols] = {}
    for needed, statement in zip(found.hypotheses, taken, strict=True):
        if isinstance(needed, Floating):
            if statement[0] != needed.kind:
                raise BadProof("kind", f"step {position} `{found.label}` wants a {needed.kind} for {needed.variable}")
            put[needed.variable] = statement[1:]
    for needed, statement in zip(found.hypotheses, taken, strict=True):
        if isinstance(needed, Essential) and (wanted := _substituted(needed.statement, put, left)) != statement:
            raise BadProof("hypothesis", f"step {position} `{found.label}` wants `{' '.join(wanted)[:200]}`")
    for first, second in found.distinct:
        for a in set(put[first]) & database.variables:
            for b in set(put[second]) & database.variables:
                if a == b or (min(a, b), max(a, b)) not in goal.distinct:
                    raise BadProof("distinct", f"`{found.label}` wants {a} and {b} to be distinct variables")
    return _substituted(found.statement, put, left)


def _substituted(statement: Symbols, put: Mapping[str, Symbols], left: int) -> Symbols:
    if sum(len(put.get(symbol, "x")) for symbol in statement) > left:
        raise ProofTooLong("symbols")
    return tuple(one for symbol in statement for one in put.get(symbol, (symbol,)))
