"""Replays a Metamath proof: labels of a compressed or plain proof, one substitution after another, within bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_verifiers.proof.database import Assertion, Database, Essential, Floating, Symbols, parse

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
            stack.append(
                _apply(_usable(goal, database, label), stack, goal, database, max_symbols - made, position)
            )
        made += len(stack[-1])
        if made > max_symbols:
            raise ProofTooLong("symbols")
    if len(stack) != 1:
        raise BadProof("stack", f"{len(stack)} statements are left at the end, not one")
    if stack[0] != goal.statement:
        raise BadProof("proves_other", f"proves `{' '.join(stack[0])[:200]}`")


def _usable(goal: MetamathGoal, database: Database, label: str) -> Assertion:
    found = database.assertions.get(label)
    if found is None:
        raise BadProof("unknown_label", f"no `{label[:80]}` in the database")
    if goal.before is not None and found.number >= goal.before:
        raise BadProof("not_yet_proved", f"`{label}` is the theorem itself or comes after it")
    same_hypotheses = tuple(e.statement for e in found.essential) == tuple(
        h.statement for h in goal.hypotheses
    )
    if not found.is_axiom and found.statement == goal.statement and same_hypotheses:
        raise BadProof("not_yet_proved", f"`{label}` is the theorem itself")
    if goal.allowed is not None and label not in goal.allowed and found.statement[0] == "|-":
        raise BadProof("not_allowed", f"`{label}` is not on the list of what may be used")
    return found


def _apply(
    found: Assertion, stack: list[Symbols], goal: MetamathGoal, database: Database, left: int, position: int
) -> Symbols:
    """The assertion applied to the top of the stack, which it takes."""
    count = len(found.hypotheses)
    if len(stack) < count:
        raise BadProof(
            "stack", f"step {position} `{found.label}` needs {count} statements, there are {len(stack)}"
        )
    taken = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    put: dict[str, Symbols] = {}
    for hypothesis, statement in zip(found.hypotheses, taken, strict=True):
        if isinstance(hypothesis, Essential):
            continue
        if statement[0] != hypothesis.kind:
            raise BadProof(
                "kind", f"step {position} `{found.label}` wants a {hypothesis.kind} for {hypothesis.variable}"
            )
        put[hypothesis.variable] = statement[1:]
    for needed, statement in zip(found.hypotheses, taken, strict=True):
        if isinstance(needed, Floating):
            continue
        wanted = _substituted(needed.statement, put, left)
        if wanted != statement:
            raise BadProof("hypothesis", f"step {position} `{found.label}` wants `{' '.join(wanted)[:200]}`")
    for a, b in found.distinct:
        _keep_apart(put[a], put[b], goal, database, found.label)
    return _substituted(found.statement, put, left)


def _substituted(statement: Symbols, put: Mapping[str, Symbols], left: int) -> Symbols:
    if sum(len(put.get(symbol, "x")) for symbol in statement) > left:
        raise ProofTooLong("symbols")
    out: list[str] = []
    for symbol in statement:
        out.extend(put.get(symbol, (symbol,)))
    return tuple(out)


def _keep_apart(first: Symbols, second: Symbols, goal: MetamathGoal, database: Database, label: str) -> None:
    ones, others = set(first) & database.variables, set(second) & database.variables
    for a in ones:
        for b in others:
            if a == b or (min(a, b), max(a, b)) not in goal.distinct:
                raise BadProof("distinct", f"`{label}` wants {a} and {b} to be distinct variables")
