r"""`kind: math`: is the final answer of a completion equal to the gold?

How this works: `extract` takes the last `\boxed{}` outside the thinking, and `match` compares it with the gold as cheaply as it can.
Undecided comparisons go to the child process with computer algebra, all of a batch at once (`_settle`). Parsing and
comparison are in `grpo_verifiers.maths`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

from grpo_verifiers.answers import Example
from grpo_verifiers.maths.comparing.golds import MathGold, compile_gold, own_text
from grpo_verifiers.maths.comparing.match import Match, match
from grpo_verifiers.maths.extract import Extraction, extract
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.reading.answers import read_answer, shown
from grpo_verifiers.text import any_of, placeholders
from grpo_verifiers.verdict import Outcome, Verdict, error, no_answer, over_limit
from grpo_verifiers.verifier import BadGold, Sample, Verifier

CACHED = 100_000
"""Number of cached comparisons, by gold and answer text: the samples of a group repeat answers."""
_PROVED = {
    "s": Match(True, "equal:symbolic"),
    "n": Match(False, "unequal"),
    "u": Match(None, "unproved"),
    "timeout": Match(None, "no_proof_in_time"),
    "memory": Match(None, "no_proof_in_memory"),
}
_KEPT = frozenset("snu")
"""Replies that are cached; others are not, since lack of time or memory may have been the machine's fault."""


class MathVerifier(Verifier):
    """Final answers against a gold answer, in tiers from string equality to computer algebra."""

    Options: ClassVar[type] = MathOptions
    columns = ("answer",)
    options: MathOptions

    def __init__(self, options: MathOptions | None = None) -> None:
        super().__init__(options or MathOptions())
        self._seen: dict[tuple[tuple[str, ...], str], Match] = {}

    def start(self) -> None:
        """Load computer algebra in its own process, without waiting for it."""
        from grpo_verifiers.maths.proving.prover import PROVER

        PROVER.launch()  # if this fails, the first sample that needs it reports the error

    def close(self) -> None:
        """End the process for computer algebra; it is shared, and another verifier would start it again."""
        prover = sys.modules.get("grpo_verifiers.maths.proving.prover")
        if prover is not None:
            prover.PROVER.close()

    def compile(self, row: Mapping[str, Any]) -> MathGold:
        """The gold of one row.

        Raises:
            BadGold: it is missing or cannot be compared with.
        """
        answer = row.get("answer")
        if nothing := placeholders(answer):
            raise BadGold(f"the answer {nothing[0]!r} stands where there is none")
        return compile_gold(any_of(answer))

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The gold's own text in a box; of a whole solution only the answer that was found in it."""
        return "\\boxed{" + own_text(row.get("answer"), self.compile(row)) + "}"

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(text, {"answer": gold}, shows, *options)
            for gold, text, shows, *options in [*((g, f"\\boxed{{{a}}}", *rest) for g, a, *rest in _BOXED), *_WHOLE]
        ]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order; never raises on model text."""
        options = self.options
        verdicts: list[Verdict | None] = []
        waiting: list[tuple[int, float, MathGold, Extraction, list[Match]]] = []
        for i, sample in enumerate(samples):
            start = perf_counter()
            found = extract(sample.turn, options.extract, options.mark)
            if not found.texts:
                verdicts.append(no_answer(found.reason, perf_counter() - start))
                continue
            if found.listed and sample.gold.is_several:
                found = Extraction((found.listed,))
            matches, waits = [], False
            for text in found.texts:
                known = self._seen.get(key := (sample.gold.texts, text))
                if known is None:
                    known = match(sample.gold, text, options)
                    if len(text) < 300:
                        self._remember(key, known)
                matches.append(known)
                waits = waits or bool(known.pending)
            if waits and all(m.equal is not False for m in matches):
                verdicts.append(None)
                waiting.append((i, perf_counter() - start, sample.gold, found, matches))
            else:
                verdicts.append(_verdict(found, matches, perf_counter() - start))
        if waiting:
            self._settle(waiting, verdicts)
        return verdicts  # type: ignore[return-value]  # every None was settled

    def readings(self, sample: Sample, verdict: Verdict) -> tuple[str, str]:
        """The trees of gold and answer; of what could not be read its words, and why."""
        answers = [read_answer(text) for text in extract(sample.turn, self.options.extract, self.options.mark).texts]
        return " | ".join(map(shown, sample.gold.answers)), " | ".join(map(shown, answers))

    def forget(self) -> None:
        """Forget comparisons made before."""
        self._seen.clear()

    def _remember(self, key: tuple[tuple[str, ...], str], found: Match) -> None:
        if len(self._seen) >= CACHED:
            for old in list(self._seen)[: CACHED // 4]:  # two threads may both do this, which does no harm
                self._seen.pop(old, None)
        self._seen[key] = found

    def _settle(
        self, waiting: list[tuple[int, float, MathGold, Extraction, list[Match]]], verdicts: list[Verdict | None]
    ) -> None:
        from grpo_verifiers.maths.proving.prover import PROVER, ChildFailed, ProofTask

        tasks: dict[tuple[tuple[str, ...], str], ProofTask] = {}
        for _, _, gold, found, matches in waiting:
            for text, m in zip(found.texts, matches, strict=True):
                if m.pending:
                    tasks[gold.texts, text] = ProofTask(m.pending)
        start = perf_counter()
        try:
            replies = PROVER.prove(list(tasks.values()), self.options.seconds)
        except ChildFailed as err:
            for i, spent, *_ in waiting:
                verdicts[i] = error("no_child", str(err), spent)
            return
        each = (perf_counter() - start) / len(tasks)
        settled: dict[tuple[tuple[str, ...], str], Match] = {}
        for key, reply in zip(tasks, replies, strict=True):
            settled[key] = _PROVED[reply]
            if reply in _KEPT:
                self._remember(key, settled[key])
        for i, spent, gold, found, matches in waiting:
            final = [settled.get((gold.texts, t), m) for t, m in zip(found.texts, matches, strict=True)]
            verdicts[i] = _verdict(found, final, spent + each)


def _verdict(found: Extraction, matches: list[Match], seconds: float) -> Verdict:
    """Wrong if one text is not equal, right if all are equal; otherwise unknown."""
    answer = found.texts[-1].strip()
    apart = next((m for m in matches if m.equal is False), None)
    if apart is not None and apart.reason == "too_long":
        return over_limit(apart.reason, answer, seconds)
    if apart is not None:
        reason = "hedge" if len(matches) > 1 else apart.reason
        return Verdict(Outcome.WRONG, 0.0, answer, reason, seconds)
    unknown = next((m for m in matches if m.equal is None), None)
    if unknown is not None:
        return error(unknown.reason, f"`{answer[:80]}` may equal the gold; nothing shows it", seconds)
    return Verdict(Outcome.RIGHT, 1.0, answer, matches[-1].reason, seconds)


_BOXED: tuple[tuple[Any, ...], ...] = (
    ("\\frac{1}{2}", "0.5", "equal in value"),
    ("\\frac{2}{3}", "0.667", "an exact gold needs an exact answer"),
    ("\\frac{2}{3}", "0.667", "tolerance of one part in a thousand", {"tolerance": 1e-3}),
    ("3.14", "\\pi", "a decimal gold of three digits accepts what it rounds"),
    ("3.14", "\\pi", "unless told not to", {"round_gold": False}),
    ("\\sqrt{5+2\\sqrt{6}}", "\\sqrt{2}+\\sqrt{3}", "a nested root"),
    ("2\\sin x\\cos x", "\\sin 2x", "an identity, proved by computer algebra"),
    ("1.2\\times 10^{-7}", "0", "a small number is not zero"),
    ("50\\%", "0.5", "the value of a percentage"),
    ("50", "50\\%", "the number before the sign"),
    ("50", "50\\%", "only the value counts", {"percent": "value"}),
    ("1", "100", "a factor of 100 without a sign"),
    ("5\\text{ cm}", "5", "a unit left off"),
    ("5\\text{ cm}", "5\\text{ m}", "a unit contradicted"),
    ("24\\text{ inches}", "2\\text{ feet}", "units converted on request", {"units": "convert"}),
    ("1,2", "2, 1", "a list in any order"),
    ("1,2", "2, 1", "lists in order on request", {"order": "kept"}),
    ("(2,1)", "(1,2)", "a tuple in its order"),
    ("\\{1,2,3\\}", "1,3,2", "set braces left off"),
    ("(3,\\infty)", "x > 3", "interval and inequality are one set"),
    ("[1,2)", "[1,2]", "a closed end"),
    ("\\pm 3", "3, -3", "plus-minus written out"),
    ("2x+4y-3=0", "y = -\\frac{1}{2}x + \\frac{3}{4}", "an equation solved"),
    ("y = 2x+1", "2x+1", "the left side left off"),
    ("y=5", "x=5", "another variable"),
    ("2220_5", "2220_6", "another base"),
    ("5", "3 = 5", "a false equation that ends in the gold"),
    ("5", "5 \\text{ or } 6", "a hedge"),
    ("5", "\\{4,5,6\\}", "several candidates"),
    ("5", "5x", "a free variable"),
    ("5", "9^{9^{9}}", "a number too large to write down"),
    ("B", "\\textbf{(B)}\\ 12", "an option with its text"),
    ("\\text{no solution}", "\\emptyset", "words and the empty set"),
)
"""Examples: a gold, a boxed answer, what it shows, and options other than the defaults."""
_WHOLE: tuple[tuple[Any, ...], ...] = (
    ("5", "\\boxed{3}, no: \\boxed{5}", "the last box counts"),
    ("5", "\\boxed{5} or \\boxed{6}", "boxes joined by or"),
    ("2,3", "\\boxed{2} and \\boxed{3}", "boxes joined by and: one list"),
    ("5", "<think>\\boxed{5}", "a box inside unfinished thinking"),
    ("5", "\\boxed{5", "a box that is never closed"),
    ("5", "The answer is 5.", "an answer line"),
    ("5", "The answer is 5.", "boxes only", {"extract": "boxed"}),
    ("5", "2 + 3 gives 5", "a last number is never guessed"),
)
"""The same of whole completions."""
