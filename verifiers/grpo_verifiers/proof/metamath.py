"""The verifier `metamath`: a proof is right if a small checker replays it to the statement of the row.

The checker only substitutes: it runs no code of the completion and its work is bounded. The statement and the axioms come
from the row, never from the completion; a proof is a list of labels, and a theorem cannot be used to prove itself.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_verifiers.sandbox.inside import extract
from grpo_verifiers.thinking import answer_text
from grpo_verifiers.verdict import Verdict, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, Sample, Verifier

TAGS = ("metamath", "mm", "proof", "text")
MOST_CHARS = 1 << 18

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
SAVE, SAVED = "$SAVE", "$SAVED"  # no label begins so


class BadDatabase(ValueError):
    """A database that cannot be read."""


class BadProof(ValueError):
    """A proof that does not hold; the first argument is a reason code, the second a sentence."""


class ProofTooLong(ValueError):
    """A proof over the bounds of steps or length."""


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


@dataclass(frozen=True)
class MetamathOptions:
    """Options of `metamath`."""

    max_steps: int = 2_000
    """Longest proof, in labels; longer ones are `over_limit`."""
    max_symbols: int = 200_000
    """Symbols that all steps together may make."""


@dataclass(frozen=True, slots=True)
class MetamathGoal:
    """A compiled row: what is to be proved, from what, with which labels."""

    database: str
    statement: Symbols
    hypotheses: tuple[Essential, ...]
    distinct: frozenset[tuple[str, str]]
    before: int | None
    allowed: frozenset[str] | None


class MetamathVerifier(Verifier):
    """Rows: `statement`; optional `hypotheses` (label -> statement), `database`, `label`, `allowed`, `distinct`, `answer`."""

    Options = MetamathOptions
    columns = ("statement",)

    def compile(self, row: Mapping[str, Any]) -> MetamathGoal:
        """The goal of a row."""
        text = row.get("database") or PROPOSITIONAL
        try:
            database = parse(text)
        except BadDatabase as err:
            raise BadGold(f"`database` cannot be read: {err}") from err
        statement = _statement(row.get("statement"), "statement", database)
        given = row.get("hypotheses") or {}
        if not isinstance(given, Mapping):
            raise BadGold("`hypotheses` maps labels to statements")
        hypotheses = tuple(
            Essential(str(k), _statement(v, f"hypotheses.{k}", database)) for k, v in given.items()
        )
        clash = [
            h.label for h in hypotheses if h.label in database.assertions or h.label in database.floating
        ]
        if clash:
            raise BadGold(f"the hypothesis `{clash[0]}` has a label of the database")
        label, allowed = row.get("label"), row.get("allowed")
        itself = database.assertions.get(str(label))
        before = None if itself is None else itself.number
        pairs = frozenset((min(a, b), max(a, b)) for a, b in row.get("distinct") or ())
        return MetamathGoal(
            text,
            statement,
            hypotheses,
            pairs,
            before,
            None if allowed is None else frozenset(map(str, allowed)),
        )

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The reference proof, where the row has one."""
        proof = row.get("answer")
        return f"```metamath\n{proof}\n```" if isinstance(proof, str) and proof.strip() else None

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order."""
        return [self._judge_one(sample) for sample in samples]

    def _judge_one(self, sample: Sample) -> Verdict:
        started = time.perf_counter()
        text = proof_text(sample.turn)
        if text is None:
            return no_answer("no_proof")
        if len(text) > MOST_CHARS:
            return over_limit("proof_size")
        shown = text.strip()
        try:
            labels = proof_labels(text if "```" in sample.completion else without_prose(text, sample.gold))
            if not labels:
                return no_answer("no_proof")
            if labels[0] == "(":
                labels = expanded(sample.gold, labels)
            check(sample.gold, labels, self.options.max_steps, self.options.max_symbols)
        except ProofTooLong as err:
            return over_limit(str(err), shown, time.perf_counter() - started)
        except BadProof as err:
            reason, detail = err.args
            return wrong(shown, reason, time.perf_counter() - started, 0.0, detail)
        return right(shown, f"steps:{len(labels)}", time.perf_counter() - started)


def _statement(value: Any, name: str, database: Database) -> Symbols:
    symbols = tuple(value.split()) if isinstance(value, str) else ()
    if len(symbols) < 2:
        raise BadGold(f"`{name}` is no statement such as `|- ( ph -> ph )`")
    unknown = [s for s in symbols if s not in database.constants and s not in database.variables]
    if unknown or symbols[0] not in database.constants:
        raise BadGold(
            f"`{name}` has a symbol that the database does not declare: {(unknown or symbols)[0]!r}"
        )
    return symbols


def proof_text(completion: str) -> str | None:
    """The last block tagged as a proof, else the last untagged one, else the last one, else the text itself if it has no blocks."""
    text = answer_text(completion)
    found = extract.blocks(text)
    if not found:
        return text if text.strip() else None
    wanted = [b.text for b in found if b.tag in TAGS] or [b.text for b in found if not b.tag]
    return wanted[-1] if wanted else found[-1].text


def without_prose(text: str, goal: MetamathGoal) -> str:
    """The last lines in a row that hold nothing but words of a proof; the text itself where there are none."""
    database = parse(goal.database)
    known = database.assertions.keys() | database.floating.keys() | {h.label for h in goal.hypotheses}
    known |= {"$=", "$.", "(", ")", "?"}
    runs: list[list[str]] = [[]]
    inside = False
    for line in text.split("\n"):
        words = line.split()
        bare = list(_without_comments(words))
        inside = inside or ("(" in bare and ")" not in bare)
        is_code = ")" in words or (inside and all(w.isupper() for w in bare))
        if words and (all(w in known for w in bare) or is_code or words[0] == "$("):
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    last = [run for run in runs if run]
    return "\n".join(last[-1]) if last else text


def proof_labels(text: str) -> list[str]:
    """The labels of a proof, without comments and an enclosing `$= … $.`.

    Raises:
        BadProof: it has other keywords (a new axiom), or is unfinished.
    """
    words = list(_without_comments(text.split()))
    if words[:1] == ["$="]:
        words = words[1:]
    if words[-1:] == ["$."]:
        words = words[:-1]
    for word in words:
        if word.startswith("$"):
            raise BadProof(
                "keyword", f"`{word}` in a proof: it is a list of labels, nothing can be declared in it"
            )
        if word == "?":
            raise BadProof("unfinished", "`?` stands for a missing step")
    return words


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


def _without_comments(words: list[str]) -> Iterator[str]:
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
    words = iter(list(_without_comments(text.split())))
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
