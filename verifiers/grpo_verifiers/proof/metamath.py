"""The verifier `metamath`: a proof is right if a small checker replays it to the statement of the row.

How this works: `compile` reads the row's database, or the propositional one, and its statement. `judge` takes the block with the
proof, or of prose the lines that hold nothing but labels, and replays the labels (`checking`). The checker only substitutes. It runs
no code of the completion, and its work is bounded. Statement and axioms come from the row, never from the completion. A
theorem cannot be used to prove itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.proof.checking import (
    MOST_CHARS,
    PROPOSITIONAL,
    BadDatabase,
    BadProof,
    Database,
    Essential,
    MetamathGoal,
    ProofTooLong,
    Symbols,
    check,
    expanded,
    parse,
    without_comments,
)
from grpo_verifiers.sandbox.inside import fences
from grpo_verifiers.thinking import answer_text
from grpo_verifiers.verdict import Verdict, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, Sample, Verifier

TAGS = ("metamath", "mm", "proof", "text")


@dataclass(frozen=True)
class MetamathOptions:
    """Options of `metamath`."""

    max_steps: int = 2_000
    """Longest proof, in labels; longer ones are `over_limit`."""
    max_symbols: int = 200_000
    """Symbols that all steps together may make."""


class MetamathVerifier(Verifier):
    """Rows: `statement`; optional `hypotheses` (label -> statement), `database`, `label`, `allowed`, `distinct`, `answer`."""

    Options = MetamathOptions
    columns = ("statement",)

    def compile(self, row: Mapping[str, Any]) -> MetamathGoal:
        """The goal of a row, in its own database or in the propositional one.

        Raises:
            BadGold: the database cannot be read, a statement is none of it, or a hypothesis has a label that it has already.
        """
        text = row.get("database") or PROPOSITIONAL
        try:
            database = parse(text)
        except BadDatabase as err:
            raise BadGold(f"`database` cannot be read: {err}") from err
        statement = _statement(row.get("statement"), "statement", database)
        given = row.get("hypotheses") or {}
        if not isinstance(given, Mapping):
            raise BadGold("`hypotheses` maps labels to statements")
        hypotheses = tuple(Essential(str(k), _statement(v, f"hypotheses.{k}", database)) for k, v in given.items())
        clash = [h.label for h in hypotheses if h.label in database.assertions or h.label in database.floating]
        if clash:
            raise BadGold(f"the hypothesis `{clash[0]}` has a label of the database")
        label, allowed = row.get("label"), row.get("allowed")
        itself = database.assertions.get(str(label))
        before = None if itself is None else itself.number
        pairs = frozenset((min(a, b), max(a, b)) for a, b in row.get("distinct") or ())
        return MetamathGoal(
            text, statement, hypotheses, pairs, before, None if allowed is None else frozenset(map(str, allowed))
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
        if text is not None and len(text) > MOST_CHARS:
            return over_limit("proof_size")
        shown = (text or "").strip()
        try:
            labels = proof_labels(shown if "```" in sample.completion else without_prose(shown, sample.gold))
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
        raise BadGold(f"`{name}` has a symbol that the database does not declare: {(unknown or symbols)[0]!r}")
    return symbols


def proof_text(completion: str) -> str | None:
    """The last block tagged as a proof, else the last untagged one, else the last one, else the text itself if it has no blocks."""
    text = answer_text(completion)
    found = fences.blocks(text)
    if not found:
        return text if text.strip() else None
    wanted = [b.text for b in found if b.tag in TAGS] or [b.text for b in found if not b.tag]
    return wanted[-1] if wanted else found[-1].text


def without_prose(text: str, goal: MetamathGoal) -> str:
    """The last consecutive lines that hold nothing but words of a proof; the text itself where there are none."""
    database = parse(goal.database)
    known = database.assertions.keys() | database.floating.keys() | {h.label for h in goal.hypotheses}
    known |= {"$=", "$.", "(", ")", "?"}
    runs: list[list[str]] = [[]]
    inside = False
    for line in text.split("\n"):
        words = line.split()
        bare = list(without_comments(words))
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
    words = list(without_comments(text.split()))
    if words[:1] == ["$="]:
        words = words[1:]
    if words[-1:] == ["$."]:
        words = words[:-1]
    for word in words:
        if word.startswith("$"):
            raise BadProof("keyword", f"`{word}` in a proof: it is a list of labels, nothing can be declared in it")
        if word == "?":
            raise BadProof("unfinished", "`?` stands for a missing step")
    return words
