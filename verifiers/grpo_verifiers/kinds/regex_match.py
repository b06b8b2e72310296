"""`regex`: a pattern found in the completion, or a group of it compared with the gold.

How this works: `plan` checks the patterns, and `Matcher` applies them. Matching is bounded twice. The `regex` engine
first runs in this process with a short time limit, which is enough for all ordinary cases. A match that exceeds it runs
again in a killable worker, limited to `timeout_s` of the worker's CPU time; the engine's own clock counts the CPU time
of the whole process, which runs too fast in a busy trainer. A match that exceeds this limit too is `over_limit`. The
dialect is that of the `regex` package (a superset of `re`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import regex

from grpo_verifiers.answers import NO_GOLD, Example
from grpo_verifiers.processes.pool import Done, Pool, ProcessLimits
from grpo_verifiers.text import accepted
from grpo_verifiers.thinking import after_thinking
from grpo_verifiers.verdict import Verdict, error, no_answer, over_limit, right, wrong
from grpo_verifiers.verifier import BadGold, BadOption, Sample, Verifier

_BUDGET_S = 0.05
_FLAGS = {"a": regex.A, "i": regex.I, "m": regex.M, "s": regex.S, "x": regex.X}

Spans = list[str | bool | None]
"""The result of each pattern: the group's text, or whether it matched."""


@dataclass(frozen=True)
class RegexOptions:
    """Options of `regex`."""

    pattern: str | list[str] = ""
    """One pattern or several; several share the score by `weights`."""
    match: Literal["search", "full", "answer_group"] = "search"
    """Found anywhere, the whole text, or the last match's `group` compared with the gold."""
    flags: str | None = None
    """Letters of a, i, m, s, x. Left out, `s` (the dot takes line breaks) to search or match all, and none to take a
    group, which would run on over the lines after it."""
    group: str = "answer"
    """Named group that holds the answer; a pattern with a single unnamed group needs no name."""
    compare: Literal["exact", "casefold", "numeric"] = "exact"
    """How the group is compared with the gold, after trimming white space."""
    thinking: Literal["auto", "keep", "drop"] = "auto"
    """Whether the thinking is part of the text; `auto` drops it where a group is compared, and keeps it else."""
    weights: list[float] = field(default_factory=list)
    """Share of the score for each pattern; default equal."""
    timeout_s: float = 0.5
    """CPU seconds a completion may take; more is `over_limit`."""
    max_chars: int = 200_000
    """Longer completions are `over_limit`."""


class RegexVerifier(Verifier):
    """Right where all patterns match (or the group equals the gold); part of the weights gives part of the score."""

    Options = RegexOptions
    options: RegexOptions

    def __init__(self, options: RegexOptions) -> None:
        super().__init__(options)
        self.columns = ("answer",) if options.match == "answer_group" else ()
        self._config = plan(options)
        self._matcher = Matcher(self._config)
        is_group = options.match == "answer_group"
        self._drops_thinking = options.thinking == "drop" or (options.thinking == "auto" and is_group)
        self._pool: Pool | None = None
        weights = options.weights or [1.0] * len(self._config.patterns)
        self._weights = [weight / sum(weights) for weight in weights]

    def compile(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """The accepted texts, or no gold where the pattern alone decides.

        Raises:
            BadGold: the pattern's group is compared, and there is no answer, or none that can be compared.
        """
        if self.options.match != "answer_group":
            return NO_GOLD
        if "answer" not in row:
            raise BadGold("no column `answer`")
        golds = accepted(row["answer"])
        if not golds:
            raise BadGold("the list of accepted answers is empty")
        texts = tuple(str(gold).strip() for gold in golds)
        for gold, text in zip(golds, texts, strict=True):
            if gold is None or isinstance(gold, bool | list | dict) or not text:
                raise BadGold(f"the answer {gold!r} is no text to compare with")
            if self.options.compare == "numeric" and number(text) is None:
                raise BadGold(f"the answer {text[:80]!r} is not a number, and `compare` is `numeric`")
        return texts

    @classmethod
    def examples(cls) -> list[Example]:
        group: dict[str, Any] = {"pattern": r"answer: (?P<answer>.*)", "match": "answer_group"}
        return [
            Example("<think>a</think> b", {}, "found anywhere", {"pattern": "<think>.*</think>"}),
            Example("<a>", {}, "half of the patterns", {"pattern": ["<a>", "<b>"]}),
            Example("answer: 3\nanswer: 4", {"answer": "4"}, "the last match is compared with the gold", group),
            Example("answer: 1,000", {"answer": "1000"}, "as numbers", {**group, "compare": "numeric"}),
            Example("a" * 5000 + "!", {}, "backtracking is cut off", {"pattern": "^(a|a)*$", "timeout_s": 0.1}),
        ]

    def judge(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Verdicts in order."""
        return [self._judge_one(sample) for sample in samples]

    def close(self) -> None:
        """End the worker that slow patterns needed."""
        if self._pool is not None:
            self._pool.close()

    def _judge_one(self, sample: Sample) -> Verdict:
        began = time.perf_counter()
        if len(sample.completion) > self.options.max_chars:
            return over_limit("too_long")
        text, is_open = sample.completion, False
        if self._drops_thinking:
            text, is_open, _ = after_thinking(sample.turn)
        if is_open:
            return no_answer("in_thinking")
        try:
            spans = self._matcher.match(text, _BUDGET_S)
        except (TimeoutError, MemoryError):
            if self._pool is None:
                limits = ProcessLimits(cpu_s=self.options.timeout_s, memory_mb=512)
                self._pool = Pool("grpo_verifiers.kinds.regex_match:serve", self._config, workers=1, limits=limits)
            result = self._pool.run([text])[0]
            if not isinstance(result, Done):
                reason = getattr(result, "reason", "raised")
                if reason in ("timeout", "memory"):
                    return over_limit(reason, seconds=result.seconds)
                return error("worker_" + reason, seconds=result.seconds)
            spans = list(result.value)
        seconds = time.perf_counter() - began
        if self.options.match == "answer_group":
            answer = spans[0]
            if not isinstance(answer, str) or not answer.strip():
                return no_answer("no_match" if answer is None else "empty_group", seconds)
            answer = answer.strip()
            if any(same(answer, gold, self.options.compare) for gold in sample.gold):
                return right(answer[:200], f"equal:{self.options.compare}", seconds)
            return wrong(answer[:200], "unequal", seconds)
        score = min(1.0, sum(weight for weight, span in zip(self._weights, spans, strict=True) if span))
        if all(spans):
            return right(None, "match", seconds)
        return wrong(None, "part_match" if any(spans) else "no_match", seconds, score=score if any(spans) else 0.0)


@dataclass(frozen=True)
class MatchPlan:
    """Checked patterns, ready to be compiled here or in a worker."""

    patterns: list[str]
    flags: int
    how: str
    group: str | int


class Matcher:
    """Compiled patterns."""

    def __init__(self, config: MatchPlan) -> None:
        self._config = config
        self._compiled = [regex.compile(pattern, config.flags) for pattern in config.patterns]

    def match(self, text: str, timeout_s: float | None) -> Spans:
        """The result of each pattern on the text; raises TimeoutError when the time limit of all patterns together is
        used up."""
        end = None if timeout_s is None else time.perf_counter() + timeout_s
        spans: Spans = []
        for pattern in self._compiled:
            left = None if end is None else max(1e-4, end - time.perf_counter())
            if self._config.how == "search":
                spans.append(pattern.search(text, timeout=left) is not None)
            elif self._config.how == "full":
                spans.append(pattern.fullmatch(text, timeout=left) is not None)
            else:
                last = None
                for last in pattern.finditer(text, timeout=left):  # noqa: B007 - the last match is what is wanted
                    pass
                spans.append(None if last is None else (last.group(self._config.group) or ""))
        return spans


def serve(config: MatchPlan) -> tuple[Callable[[str], Spans], None]:
    """The pool's task: matching without a budget of its own."""
    matcher = Matcher(config)
    return (lambda text: matcher.match(text, None)), None


def plan(options: RegexOptions) -> MatchPlan:
    """Check the options.

    Raises:
        BadOption: a pattern that does not compile (with its position), weights that do not fit, an unknown flag.
    """
    patterns = [options.pattern] if isinstance(options.pattern, str) else list(options.pattern)
    if not patterns or not all(patterns):
        raise BadOption("pattern", "`pattern` is empty")
    letters = options.flags if options.flags is not None else "" if options.match == "answer_group" else "s"
    unknown = [letter for letter in letters if letter not in _FLAGS]
    if unknown:
        raise BadOption("flags", f"unknown flag `{unknown[0]}`; known: {', '.join(_FLAGS)}")
    flags = 0
    for letter in letters:
        flags |= _FLAGS[letter]
    if options.weights and len(options.weights) != len(patterns):
        raise BadOption("weights", f"{len(options.weights)} weights for {len(patterns)} patterns")
    if options.weights and (min(options.weights) < 0 or sum(options.weights) <= 0):
        raise BadOption("weights", "`weights` must not be negative and must not sum to 0")
    if options.timeout_s <= 0:
        raise BadOption("timeout_s", "`timeout_s` must be above 0")
    for pattern in patterns:
        try:
            compiled = regex.compile(pattern, flags)
        except regex.error as err:
            at = f" at character {err.pos + 1}" if err.pos is not None else ""
            raise BadOption("pattern", f"`{pattern}` is no regular expression: {err.msg}{at}") from err
        except (RecursionError, MemoryError, OverflowError) as err:
            raise BadOption("pattern", f"the pattern is too big: {type(err).__name__}") from err
    group: str | int = options.group
    if options.match == "answer_group":
        if len(patterns) > 1:
            raise BadOption("pattern", "`match: answer_group` takes one pattern")
        if group not in compiled.groupindex:
            if compiled.groups != 1 or compiled.groupindex:
                raise BadOption("group", f"the pattern has no group `{group}`: write `(?P<{group}>…)`")
            group = 1
    return MatchPlan(patterns, flags, options.match, group)


def same(answer: str, gold: str, how: str) -> bool:
    """Whether an answer equals the gold: as text, without regard to case, or as decimal numbers."""
    if how == "numeric":
        one, other = number(answer), number(gold)
        return one is not None and one == other
    if how == "casefold":
        return answer.casefold() == gold.casefold()
    return answer == gold


def number(text: str) -> Decimal | None:
    """A finite decimal number from text such as `1,234.50`, `$3`, `+7`, `−2`; None for anything else."""
    text = text.strip().replace("\u2212", "-").lstrip("$").rstrip(".")
    if "," in text:
        if not regex.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", text):
            return None
        text = text.replace(",", "")
    if len(text) > 400 or "_" in text:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None
