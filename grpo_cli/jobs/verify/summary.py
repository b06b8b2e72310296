"""The summary at the end: a block for stderr and one object for `--json`.

`mean_score` is over the samples the primary gave a score; `pass@1` over groups, each weighing the same. They differ
where groups differ in size. None (`—`) is not measured, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_cli.jobs.verify.scorer import VerdictCounts
from grpo_cli.jobs.verify.tally import BYTES_A_GROUP, GroupTotals
from grpo_cli.statistics.estimate import Interval, clustered, wilson
from grpo_verifiers.kinds.environment import NAME as ENVIRONMENT
from grpo_verifiers.verdict import Outcome

SCHEMA = 1
EXACT_GROUPS = 3000
"""Up to this number of groups the interval is that of `grpo eval`; above, Student's quantile equals the normal one to
three digits."""
Z95 = 1.959964
PREDICTED = (4, 8, 16)
WIDTH = 78


@dataclass(frozen=True, slots=True)
class JudgedEpisodes:
    """Which of `n` episodes verifiers of these kinds judged again, and which verdicts are as recorded."""

    n: int
    kinds: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The entry of `--json`."""
        return {"n": self.n, "recorded": self._named(True), "judged_again": self._named(False)}

    def lines(self) -> list[str]:
        """The text for the user; empty without episodes."""
        if not self.n:
            return []
        again, kept = (", ".join(f"`{name}`" for name in self._named(of)) for of in (False, True))
        parts = [f"{again}: what was said, judged again"] if again else []
        parts.append(
            f"{kept}: the outcome on record, no world is played again"
            if kept
            else "what their worlds made of them is left out: no verifier `environment`"
        )
        return [row("episodes", f"{self.n:,}   {parts[0]}"), *(row("", one) for one in parts[1:])]

    def _named(self, are_recorded: bool) -> list[str]:
        return [name for name, kind in self.kinds.items() if (kind == ENVIRONMENT) is are_recorded]


@dataclass(slots=True)
class VerifyReport:
    """The results of one pass over the input."""

    primary: str
    kinds: Mapping[str, str]
    """The verifiers by name, each with its kind."""
    grouping: str
    totals: GroupTotals
    counts: VerdictCounts = field(default_factory=VerdictCounts)
    lines: int = 0
    bad_lines: int = 0
    seconds: float = 0.0
    is_scattered: bool = False
    is_inexact: bool = False
    is_gated: bool = False
    """Whether the outcome alone, not the whole reward, decides which groups are alive."""
    warnings: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The verifiers, the primary's among them, in the order of the recipe."""
        return list(self.kinds)

    @property
    def episodes(self) -> JudgedEpisodes:
        """What was done to those among the lines."""
        return JudgedEpisodes(self.counts.episodes, self.kinds)

    @property
    def samples(self) -> int:
        """Completions judged."""
        return sum(self.totals.outcomes.values())

    @property
    def mean_score(self) -> float | None:
        """The primary's mean score over the samples it gave one."""
        return self.score_of(self.primary)

    def score_of(self, name: str) -> float | None:
        """A verifier's mean score over the samples it gave one."""
        n = self.counts.score_n.get(name, 0)
        return self.counts.score_sum[name] / n if n else None

    @property
    def mean_reward(self) -> float | None:
        """Mean reward over the samples that have one."""
        return self.totals.reward_sum / self.totals.reward_n if self.totals.reward_n else None

    def pass_1(self) -> Interval | None:
        """pass@1 with its 95 % interval, clustered by group."""
        shares = [(c / n, times) for (n, c), times in self.totals.pairs.items() if n]
        n = sum(times for _, times in shares)
        if n == 0:
            return None
        if n <= EXACT_GROUPS:
            values = [
                [1.0] * right + [0.0] * (judged - right)
                for (judged, right), times in self.totals.pairs.items()
                for _ in range(times)
            ]
            return clustered(values)
        centre = sum(share * times for share, times in shares) / n
        variance = sum((share - centre) ** 2 * times for share, times in shares) / (n - 1) / n
        samples = sum(judged * times for (judged, _), times in self.totals.pairs.items())
        trials = min(centre * (1 - centre) / variance, samples) if variance > 0 else float(n)
        found = wilson(centre * trials, trials, Z95)
        return Interval(centre, found.low, found.high, n)

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        totals, found = self.totals, self.pass_1()
        outcomes = {outcome.value: totals.outcomes[outcome.value] for outcome in Outcome}
        groups: dict[str, Any] = {"n": totals.groups, "by": self.grouping, "size": totals.usual_size()}
        groups |= totals.kinds()
        groups["with_signal"] = totals.with_signal
        groups["pass@k"] = {str(k): value for k, value in totals.pass_k().items()}
        groups["pass@1_ci"] = [found.low, found.high] if found is not None else None
        groups["histogram"] = [[n, c, times] for (n, c), times in sorted(totals.pairs.items())[:1000]]
        groups["predicted_dead"] = {str(size): totals.predicted_dead(size) for size in self.sizes()}
        groups["scattered"] = self.is_scattered
        groups["exact"] = not self.is_inexact
        return {
            "schema": SCHEMA,
            "n": self.samples,
            **({"episodes": self.episodes.as_json()} if self.episodes.n else {}),
            "outcomes": outcomes,
            **self.counts.failures.as_json(),
            "mean_score": self.mean_score,
            "mean_reward": self.mean_reward,
            "primary": self.primary,
            "verifiers": {name: self._verifier(name) for name in self.names},
            "groups": groups,
            "warnings": list(self.warnings),
            "lines": self.lines,
            "bad_lines": self.bad_lines,
            "seconds": round(self.seconds, 3),
            "lines_per_s": round(self.lines / self.seconds, 1) if self.seconds > 0 else None,
        }

    def _verifier(self, name: str) -> dict[str, Any]:
        outcomes: Mapping[str, int] = self.counts.outcomes.get(name, {})
        return {
            "outcomes": {outcome.value: outcomes.get(outcome.value, 0) for outcome in Outcome},
            "mean_score": self.score_of(name),
            "reasons": dict(self._reasons(name)),
        }

    def _reasons(self, name: str) -> list[tuple[str, int]]:
        counter = self.counts.reasons.get(name)
        return [] if counter is None else sorted(counter.items(), key=lambda item: (-item[1], item[0]))

    def sizes(self) -> list[int]:
        """Group sizes for which dead groups are predicted."""
        usual = self.totals.usual_size()
        return sorted({*PREDICTED, usual} if usual > 1 else {*PREDICTED})

    def text(self) -> str:
        """The block for people, without colour."""
        warned = [row("warning", warning) for warning in self.warnings]
        n = self.samples
        parts = [
            f"{outcome.value.replace('_', ' ')} {count:,}"
            + (f" ({count / n:.1%})" if n and outcome is Outcome.RIGHT else "")
            for outcome in Outcome
            if (count := self.totals.outcomes[outcome.value]) or outcome in (Outcome.RIGHT, Outcome.WRONG)
        ]
        out = [row("samples", f"{n:,}   " + "   ".join(parts))] if n else [row("samples", "0")]
        if len(self.names) > 1:
            out.append(row("reward", f"mean {shown(self.mean_reward)}"))
        for name in self.names:
            reasons = ", ".join(f"{reason or '?'} {count:,}" for reason, count in self._reasons(name)[:5])
            label = "score" if name == self.names[0] else ""
            out.append(row(label, f"{name} {shown(self.score_of(name))}   {reasons}"))
        bad = f"   {self.bad_lines:,} bad" if self.bad_lines else ""
        speed = f"{self.lines / self.seconds:,.0f} lines/s" if self.seconds > 0 else "—"
        out += [*self.episodes.lines(), *self._group_lines(), *warned]
        return "\n".join([*out, row("lines", f"{self.lines:,}{bad}   {self.seconds:.2f} s   {speed}")])

    def _group_lines(self) -> list[str]:
        totals, size = self.totals, self.totals.usual_size()
        if not totals.groups:
            return []
        if max(totals.sizes) == 1:
            return [row("groups", f"one sample in each, by {self.grouping}"), *self._pass_lines(), *self._order_lines()]
        kinds = totals.kinds()
        of = f" of {size}" if len(totals.sizes) == 1 else f" of {min(totals.sizes)} to {max(totals.sizes)}"
        none = f"   no verdict {kinds['no_verdict']:,}" if kinds["no_verdict"] else ""
        dead = totals.groups - totals.with_signal
        predicted = [f"{shown(totals.predicted_dead(g))} of groups of {g}" for g in self.sizes()]
        out = [
            row("groups", f"{totals.groups:,}{of} by {self.grouping}"),
            row(
                "",
                f"all wrong {kinds['all_wrong']:,}   mixed {kinds['mixed']:,}   all right {kinds['all_right']:,}{none}",
            ),
            *self._pass_lines(),
            row(
                "dead",
                f"{dead:,} of {totals.groups:,} groups have equal {'outcomes' if self.is_gated else 'rewards'}: no gradient",
            ),
            row("", f"predicted in training: {', '.join(predicted)}"),
        ]
        return [*out, *self._order_lines()]

    def _order_lines(self) -> list[str]:
        if self.is_inexact:
            return [row("", "groups came back after they were counted: use `--groups scattered`")]
        if self.is_scattered:
            return [row("", f"lines of a group are scattered: about {BYTES_A_GROUP} bytes kept for each group")]
        return []

    def _pass_lines(self) -> list[str]:
        found = self.pass_1()
        if found is None:
            return []
        passes = [f"pass@{k} {shown(v)}" for k, v in self.totals.pass_k().items() if k > 1]
        half = (found.high - found.low) / 2
        return [row("", "   ".join([f"pass@1 {shown(found.mean)} ±{half:.2g} (n {found.n:,})", *passes]))]


def row(label: str, text: str) -> str:
    """One labelled line."""
    return f"  {label:<8} {text}"


def shown(value: float | None) -> str:
    """Three significant digits, `—` where there is no number."""
    return "—" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
