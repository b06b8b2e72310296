"""Scores lines in one process: the part of `grpo verify` that runs in many processes.

A scored line is the input's own bytes with `verdicts`, `outcome` and `reward` put before the closing brace, so
numbers keep their spelling; only a line that has one of these keys already is written anew.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_cli.data.files import WatchedFields
from grpo_cli.jobs.verify.fields import BadLine, FieldNames, completions_of, group_of, prompt_of, row_of
from grpo_cli.lines import BrokenText, NumberedLine
from grpo_cli.reward.plan import ScoringPlan
from grpo_cli.statistics.failures import Failures
from grpo_verifiers.combine import NoVerifier, PairSums, combine, count_pairs, judges_of, outcome, without_skipped
from grpo_verifiers.explained import judge_and_explain
from grpo_verifiers.kinds.environment import is_episode, recorded
from grpo_verifiers.maths.extract import mark_of
from grpo_verifiers.shaping import Shaped, shape
from grpo_verifiers.strict_json import RepeatedKey, loads
from grpo_verifiers.thinking import opening_at_end
from grpo_verifiers.verdict import Outcome, Verdict, floored
from grpo_verifiers.verifier import BadGold, Sample, Verifier

# Golds compiled once for all rows that agree in every field that compiling reads.

MOST_GOLDS = 4096
_MISSING = object()


class GoldCache:
    """Golds of one verifier."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._names: tuple[str, ...] = ()
        self._golds: dict[tuple[Any, ...], Any] = {}
        self._reads_all = False

    def gold(self, row: Mapping[str, Any]) -> Any:
        """The row's gold.

        Raises:
            BadGold: the verifier cannot use the row.
        """
        key = None if self._reads_all else self._key(row)
        if key is not None and self._names and key in self._golds:
            return self._golds[key]
        watched = WatchedFields(row)
        gold = self._verifier.compile(watched)
        if watched.reads_all:
            self._reads_all, self._golds = True, {}
            return gold
        if not watched.read <= set(self._names):
            # keys made from fewer names would confuse rows that differ only in the new ones
            self._names = tuple(sorted(watched.read | set(self._names)))
            self._golds = {}
            key = self._key(row)
        if key is not None:
            if len(self._golds) >= MOST_GOLDS:
                self._golds.clear()
            self._golds[key] = gold
        return gold

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
        values = [row.get(name, _MISSING) for name in self._names]
        try:
            # `1`, `1.0` and `true` are equal as keys but different golds; lists and objects are compared by their JSON
            parts = [v if isinstance(v, str) or v is _MISSING else (type(v), repr(v)) for v in values]
        except (RecursionError, ValueError):
            return None
        return tuple(parts)


OURS = ("verdicts", "outcome", "reward", "shaping")
MOST_REASONS = 200
_ENCODER = json.JSONEncoder(ensure_ascii=False)


@dataclass(slots=True)
class VerdictCounts:
    """Sums over samples by verifier: outcomes, reasons, and the scores that exist."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    score_sum: dict[str, float] = field(default_factory=dict)
    score_n: dict[str, int] = field(default_factory=dict)
    pairs: dict[tuple[str, str], PairSums] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    marks: Counter[str] = field(default_factory=Counter)
    """Beginnings of the last lines of completions without an answer, if they could be an answer mark."""
    episodes: int = 0
    """Lines with the turns of an episode."""

    def add(self, name: str, verdict: Verdict) -> None:
        """Count one verdict."""
        self.outcomes.setdefault(name, Counter())[verdict.outcome.value] += 1
        reasons = self.reasons.setdefault(name, Counter())
        known = verdict.reason in reasons or len(reasons) < MOST_REASONS
        reasons[verdict.reason if known else "other"] += 1
        if verdict.score is not None:
            self.score_sum[name] = self.score_sum.get(name, 0.0) + verdict.score
            self.score_n[name] = self.score_n.get(name, 0) + 1

    def merge(self, other: VerdictCounts, file: str = "") -> None:
        """Add the counts of another scorer, for lines of `file`."""
        self.failures.merge(other.failures, file)
        for name, counter in other.outcomes.items():
            self.outcomes.setdefault(name, Counter()).update(counter)
        for name, counter in other.reasons.items():
            own = self.reasons.setdefault(name, Counter())
            for reason, n in counter.items():
                own[reason if reason in own or len(own) < MOST_REASONS else "other"] += n
        for name, total in other.score_sum.items():
            self.score_sum[name] = self.score_sum.get(name, 0.0) + total
            self.score_n[name] = self.score_n.get(name, 0) + other.score_n[name]
        self.episodes += other.episodes
        self.marks += Counter(dict(other.marks.most_common(MOST_REASONS)))
        for names, sums in other.pairs.items():
            self.pairs.setdefault(names, PairSums()).merge(sums)


Judged = tuple[int, str, float | None, float | None]
"""A sample's data for group statistics: group, primary outcome, reward, and the part of the reward that decides whether
a group is alive."""


@dataclass(slots=True)
class ScoredLines:
    """A chunk of lines after scoring; `out` has one entry a line, None where the line was bad."""

    out: list[bytes | None] = field(default_factory=list)
    samples: list[Judged] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    counts: VerdictCounts = field(default_factory=VerdictCounts)


@dataclass(slots=True)
class _Read:
    """One line that could be read, waiting for its verdicts."""

    line: NumberedLine
    value: dict[str, Any]
    completions: list[str]
    group: int
    prompt: str
    assistant_prefix: str
    golds: dict[str, Any]
    verdicts: list[dict[str, Verdict]]
    explained: list[dict[str, Any]]


class Scorer:
    """The verifiers of a plan over chunks of lines."""

    def __init__(
        self, plan: ScoringPlan, keys: FieldNames, verifiers: Mapping[str, Verifier], explains: bool = False
    ) -> None:
        """`explains`: each verdict comes with what was read and the rules that decided."""
        self._plan = plan
        self._explains = explains
        self._terms = plan.terms
        self._keys = keys
        self._verifiers = verifiers
        self._shapers = plan.shapers()
        self._outcome = plan.outcome if plan.is_gated else None
        self._has_groups = any(verifier.low != 0.0 for verifier in verifiers.values())
        self._golds = {name: GoldCache(verifier) for name, verifier in verifiers.items()}

    def score(self, lines: Sequence[NumberedLine]) -> ScoredLines:
        """Judge all completions of a chunk, each verifier in one batch."""
        scored = ScoredLines()
        reads: list[_Read | None] = []
        for line in lines:
            try:
                reads.append(self._read(line))
            except BadLine as err:
                scored.problems.append((line.number, str(err)))
                reads.append(None)
        for name, verifier in self._verifiers.items():
            self._judge(name, verifier, [read for read in reads if read is not None and name in read.golds])
        if self._has_groups:
            _settle([read for read in reads if read is not None], self._verifiers)
        for read in reads:
            scored.out.append(None if read is None else self._finish(read, scored))
        return scored

    def _read(self, line: NumberedLine) -> _Read:
        value = parse(line)
        row = row_of(value, self._keys)
        completions = completions_of(value, self._keys)
        try:
            names = judges_of(row, self._terms, self._plan.rule)
        except NoVerifier as err:
            raise BadLine(str(err)) from None
        golds = {}
        for name in names:
            try:
                golds[name] = self._golds[name].gold(row)
            except BadGold as err:
                raise BadLine(f"verifier `{name}`: {err}") from None
        said = value.get("begun")
        return _Read(
            line,
            value,
            completions,
            group_of(value, self._keys, line.number),
            prompt_of(value, self._keys),
            said if isinstance(said, str) else opening_at_end(prompt_of(value, self._keys)),
            golds,
            [{} for _ in completions],
            [{} for _ in completions],
        )

    def _judge(self, name: str, verifier: Verifier, reads: Sequence[_Read]) -> None:
        samples = [
            Sample(
                text,
                read.golds[name],
                read.prompt,
                played=recorded(read.value, name),
                assistant_prefix=read.assistant_prefix,
            )
            for read in reads
            for text in read.completions
        ]
        if self._explains and not verifier.wants_whole_batch:
            both = iter([judge_and_explain(verifier, sample) for sample in samples])
            for read in reads:
                for held, explained in zip(read.verdicts, read.explained, strict=True):
                    held[name], explained[name] = next(both)
            return
        verdicts = iter(verifier.judge(samples) if samples else [])
        for read in reads:
            for held in read.verdicts:
                held[name] = next(verdicts)

    def _finish(self, read: _Read, scored: ScoredLines) -> bytes:
        added: list[dict[str, Any]] = []
        scored.counts.episodes += is_episode(read.value)
        for i, verdicts in enumerate(read.verdicts):
            found = outcome(verdicts, self._terms) or Outcome.ERROR
            one: dict[str, Any] = {"verdicts": {name: verdict.as_json() for name, verdict in verdicts.items()}}
            for name, said in read.explained[i].items():
                one["verdicts"][name]["explained"] = said
            shaping: dict[str, float] = {}
            if self._shapers:
                tokens = read.value.get("tokens")
                tokens = tokens[i] if isinstance(tokens, list) and i < len(tokens) else tokens
                known = tokens if type(tokens) is int and tokens >= 0 else None
                sample = Shaped(read.completions[i], known, self._plan.max_tokens, found is Outcome.RIGHT)
                shaping = shape(self._shapers, sample)
            if shaping:
                one["shaping"] = shaping
            one["outcome"] = found.value
            one["reward"] = combine(verdicts, self._terms, shaping, self._plan.rule)
            added.append(one)
            told = one["reward"]
            if self._outcome is not None and told is not None:
                turns = read.value["turns"] if is_episode(read.value) else ()
                invalid = sum(not turn.get("valid", True) for turn in turns)
                told = self._outcome.pays(verdicts, told - math.fsum(shaping.values()), invalid)
            if found is Outcome.NO_ANSWER and (mark := mark_of(read.completions[i])):
                scored.counts.marks[mark] += 1
            scored.samples.append((read.group, one["outcome"], one["reward"], told))
            scored.counts.failures.add(verdicts, str(read.line.number), read.value)
            for name, verdict in verdicts.items():
                scored.counts.add(name, verdict)
            if len(verdicts) > 1:
                count_pairs(scored.counts.pairs, verdicts)
        if self._keys.completions:
            keys = ["verdicts", *(["shaping"] if self._shapers else []), "outcome", "reward"]
            return written(read, {key: [one[key] for one in added] for key in keys})
        return written(read, added[0])


def _settle(reads: Sequence[_Read], verifiers: Mapping[str, Verifier]) -> None:
    """Set the scores of `no_answer` and `over_limit`, and drop verifiers that do not judge a prompt, group by group."""
    groups: dict[int, list[_Read]] = {}
    for read in reads:
        groups.setdefault(read.group, []).append(read)
    for members in groups.values():
        held = [verdicts for read in members for verdicts in read.verdicts]
        for name, verifier in verifiers.items():
            judged = [verdicts for verdicts in held if name in verdicts]
            for verdicts, verdict in zip(judged, floored([one[name] for one in judged], verifier.low), strict=True):
                verdicts[name] = verdict
        kept = iter(without_skipped(held))
        for read in members:
            read.verdicts = [next(kept) for _ in read.verdicts]


def parse(line: NumberedLine) -> dict[str, Any]:
    """The object of a line.

    Raises:
        BadLine: it is too long, no UTF-8, no JSON, or no object.
    """
    if line.text is None:
        raise BadLine("longer than 64 MiB")
    if isinstance(line.text, BrokenText):
        raise BadLine(line.text.decode())
    try:
        value = loads(line.text.decode())
    except UnicodeDecodeError as err:
        raise BadLine(f"not UTF-8: byte {err.start + 1}") from None
    except RepeatedKey as err:
        raise BadLine(str(err)) from None
    except json.JSONDecodeError as err:
        raise BadLine(f"not JSON: {err.msg.lower()} at character {err.pos + 1}") from None
    except (ValueError, RecursionError) as err:
        raise BadLine(
            f"not JSON: {'nested too deep' if isinstance(err, RecursionError) else 'a number too long'}"
        ) from None
    if not isinstance(value, dict):
        raise BadLine("not a JSON object")
    return value


def written(read: _Read, added: dict[str, Any]) -> bytes:
    """The output line, without its end."""
    assert read.line.text is not None
    if any(key in read.value for key in OURS):
        return dumped({**read.value, **added})
    body = read.line.text[:-1].rstrip()
    comma = b", " if read.value else b""
    return body + comma + dumped(added)[1:]


def dumped(value: Mapping[str, object]) -> bytes:
    """JSON in UTF-8; text that UTF-8 cannot encode (lone surrogates of a model) is escaped."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
