"""`reasoning_gym`: the scorer of the row's own reasoning-gym data set, as a verifier.

How this works: `refusal` rejects answers that no scorer should get, and `serve` runs the scorers in killable workers.
The scorers trust their input: some call `eval` or sympy's parser on the text. In the worker `eval` reads only literals,
and text for a parser must first match `_FORMULA`, so model text never runs as code. If a scorer raises, `Blame` tries
it on another answer, to find out whether this answer is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from grpo_verifiers.answers import MOST_CHARS, Example, Where, find_answer
from grpo_verifiers.kinds.functions.asking import Blame
from grpo_verifiers.processes.pool import Done, Killed, LoadFailed, Pool, ProcessLimits, Result
from grpo_verifiers.verdict import Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Unavailable, Verifier

_FORMULA = re.compile(
    r"(?:[\d\s.+\-*/^()=,]|\b(?:[a-zA-Z]|sqrt|exp|log|ln|sin|cos|tan|sinh|cosh|tanh|pi|asin|acos|atan)\b)*"
)
_BIG_POWER = re.compile(r"(?:\^|\*\*)\(?-?(?:\d{4,}|[\d.()]{1,50}(?:\^|\*\*))")
_NOT_A_NUMBER = re.compile(r"(?<![A-Za-z])[+-]?(?:nan|inf|infinity)j?(?![A-Za-z])", re.I)
_PARSED = frozenset(
    ["countdown", "puzzle24", "simple_integration", "intermediate_integration", "polynomial_multiplication"]
)
"""Data sets whose scorer gives the answer to sympy's parser, which is eval underneath."""


@dataclass(frozen=True)
class GymOptions:
    """Options of `reasoning_gym`."""

    dataset: str | None = None
    """Name of the data set; left out, the row's column `rg` or its metadata says."""
    extract: Where = "box_or_line"
    """Where the answer is looked for; answers of several lines (grids) need `whole` or `<answer>` tags."""
    right_at: float = 1.0
    """Score of the gym's scorer from which an answer counts as right."""
    timeout_s: float = 5.0
    """CPU seconds one answer may take."""
    workers: int | None = None
    """Worker processes; default one a core."""


_Item = tuple[str, dict[str, Any], str]
"""Name of the data set, entry, answer."""


class GymVerifier(Verifier):
    """The gym's score; its partial credit (often .01 for any answer at all) stays below `right_at`."""

    Options: ClassVar[type] = GymOptions
    options: GymOptions
    columns: tuple[str, ...] = ("question", "answer", "metadata")
    runs_elsewhere = True

    def __init__(self, options: GymOptions) -> None:
        super().__init__(options)
        if not 0 < options.right_at <= 1:
            raise BadOption("right_at", "`right_at` must be in (0, 1]")
        limits = ProcessLimits(cpu_s=options.timeout_s, memory_mb=1024)
        self._pool = Pool("grpo_verifiers.kinds.reasoning_gym:serve", None, workers=options.workers, limits=limits)

        def gold_of(item: _Item) -> str | None:
            return item[1]["answer"] if isinstance(item[1]["answer"], str) else None

        self._blame = Blame[_Item](
            ask=lambda jobs: [job.result() for job in [self._pool.submit(items) for items in jobs]],
            row=lambda item: (item[0], id(item[1])),
            plain=lambda item: [(*item[:2], gold if (gold := gold_of(item)) is not None else "no idea")],
            judges=lambda item, found: (
                isinstance(found, Done) and (gold_of(item) is None or float(found.value) >= options.right_at)
            ),
            learns=False,
        )

    def start(self) -> None:
        """Import reasoning-gym in a worker.

        Raises:
            Unavailable: it is not installed.
        """
        try:
            self._pool.start()
        except LoadFailed as err:
            raise Unavailable(f"`reasoning_gym` cannot be loaded: {err}", hint="pip install 'grpo-cli[tasks]'") from err

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def compile(self, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The data set's name and the entry its scorer wants.

        Raises:
            BadGold: the row has no `metadata`, or nothing names its data set.
        """
        metadata = row.get("metadata")
        if not isinstance(metadata, Mapping):
            raise BadGold("no column `metadata`, which the gym's scorer reads")
        name = self.options.dataset or row.get("rg") or metadata.get("source_dataset")
        if not isinstance(name, str):
            raise BadGold("the row does not say its data set (column `rg`), and neither does the option `dataset`")
        return name, {"question": row.get("question", ""), "answer": row.get("answer"), "metadata": dict(metadata)}

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order, from all workers."""
        verdicts: list[Verdict | None] = []
        items: list[_Item] = []
        for sample in samples:
            name, entry = sample.gold
            is_long = len(sample.turn) > MOST_CHARS
            texts, reason = ((), "") if is_long else find_answer(sample.turn, self.options.extract)
            if is_long:
                verdicts.append(over_limit("too_long"))
            elif not texts:
                verdicts.append(no_answer(reason))
            elif len(texts) > 1:
                verdicts.append(wrong(" or ".join(texts)[:200], "hedge"))
            elif reason := refusal(name, entry, texts[0]):
                verdicts.append(wrong(texts[0][:200], reason))
            else:
                verdicts.append(None)
                items.append((name, entry, texts[0]))
        self.start()
        found = self._pool.run(items)
        judged = iter(zip(items, found, self._blame.settle(items, found), strict=True))
        return [verdict if verdict is not None else self._verdict(*next(judged)) for verdict in verdicts]

    def _verdict(self, item: _Item, result: Result, ours: str | None) -> Verdict:
        """The verdict of a result; `ours`: why the answer did not cause it."""
        text = item[2][:200]
        if isinstance(result, Done):
            score = float(result.value)
            make = right if score >= self.options.right_at else wrong
            return make(text, "gym", result.seconds, score)
        if isinstance(result, Killed):
            if ours is None and result.reason != "died":
                return over_limit(result.reason, text, result.seconds)
            what = "the worker died" if result.reason == "died" else f"worker: {result.reason}"
        else:
            what = f"{result.kind}: {result.message}"[:200]
        if ours is None:
            return wrong(text, "verifier_raised", detail=what)
        reason = "worker_unavailable" if what == "worker: unavailable" else "verifier_raised"
        return error(reason, f"{what} ({ours})")

    def gold_text(self, row: Mapping[str, Any]) -> str | None:
        """The entry's answer where there is one; some data sets have only a scorer."""
        answer = row.get("answer")
        if not isinstance(answer, str) or not answer:
            return None
        return answer if self.options.extract in ("whole", "last_line") else f"<answer>{answer}</answer>"

    @classmethod
    def examples(cls) -> list[Example]:
        row = {"rg": "basic_arithmetic", "question": "Calculate 2 + 2.", "answer": "4", "metadata": {}}
        return [
            Example("\\boxed{4}", row, "the gym's own scorer"),
            Example("\\boxed{5}", row, "and its partial credit"),
        ]


def refusal(name: str, entry: Mapping[str, Any], text: str) -> str:
    """Why an answer is wrong before the gym's scorer sees it, as a reason code; empty where the scorer decides.

    Some scorers pay for `nan` (no difference from anything is above a tolerance), or for any text other than
    `True` where the answer is `False`.
    """
    if name in _PARSED and not is_formula(text):
        return "no_formula"
    if _NOT_A_NUMBER.search(text):
        return "not_a_number"
    if entry.get("answer") in ("True", "False") and text.strip().strip(".").casefold() not in ("true", "false"):
        return "no_truth_value"
    return ""


def is_formula(text: str) -> bool:
    """Whether a text has only the characters of a formula in one variable, and is short enough for a parser."""
    return len(text) <= 2000 and bool(_FORMULA.fullmatch(text)) and not _BIG_POWER.search("".join(text.split()))


def serve(config: None) -> tuple[Callable[[tuple[str, dict[str, Any], str]], float], None]:
    """The pool's task: the gym's scorers, with `eval` replaced where a scorer calls it on the answer."""
    import ast
    import sys

    from reasoning_gym.factory import DATASETS

    for name in ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "number_sorting"):
        if name in DATASETS:
            sys.modules[DATASETS[name][0].__module__].__dict__["eval"] = ast.literal_eval
    scorers: dict[str, Callable[..., float]] = {}

    def work(item: tuple[str, dict[str, Any], str]) -> float:
        name, entry, text = item
        if name not in scorers:
            dataset, options = DATASETS[name]
            scorers[name] = dataset(config=options()).score_answer
        score = float(scorers[name](answer=text, entry=entry))
        return min(1.0, max(0.0, score)) if score == score else 0.0

    return work, None
