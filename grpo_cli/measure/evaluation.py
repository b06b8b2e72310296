"""Statistics of a model from sampled and judged records: pass@k and maj@k with intervals, lengths, missing verdicts.

pass@1 is the mean over prompts of their share of right samples; its interval is clustered by prompt, since the
samples of one prompt are not independent. A sample without the primary verdict counts neither way, and every sample on which some
verifier failed is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from grpo_cli.data.rows import Split
from grpo_cli.distributed.ranks import ALONE, Ranks
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.course import Eval
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.reward.group import sample_record
from grpo_cli.reward.group_judge import judge_finished, texts_of
from grpo_cli.reward.judge import Judge, RowTasks, no_assistant_prefix
from grpo_cli.rollout.engine import Engine, Request, SamplingSettings
from grpo_cli.rollout.episodes.harness import episodes_of
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import episode_stats, turns_by_outcome
from grpo_cli.statistics.estimate import Interval, clustered, maj_at_k, pass_at_k_interval, wilson
from grpo_cli.statistics.failures import Failures
from grpo_cli.statistics.step import GroupCounts, mean
from grpo_verifiers.thinking import has_thought


@dataclass(frozen=True)
class MeasuredSamples:
    """One way of sampling, measured: pass@1 with its interval, pass@k and maj@k, and the records behind them."""

    pass_1: Interval
    pass_k: dict[int, Interval]
    maj_k: dict[int, float]
    think: float | None
    mean_tokens: float | None
    truncated: float | None
    failures: Failures
    seconds: float
    records: list[SampleRecord]
    episodes: dict[str, float | int | None] = field(default_factory=dict)
    """Turns, those of right and wrong episodes too, and invalid actions, where samples are episodes."""

    @property
    def without_verdict(self) -> int:
        """Samples on which some verifier failed."""
        return self.failures.failed


@dataclass(frozen=True)
class Evaluation:
    """A model measured with sampling (the headline) and greedily (None where switched off)."""

    sampled: MeasuredSamples
    greedy: MeasuredSamples | None

    @property
    def failures(self) -> Failures:
        """The failures of verifiers on all answers, sampled and greedy."""
        found = Failures()
        for measured in (self.sampled, self.greedy):
            if measured is not None:
                found.merge(measured.failures)
        return found

    def as_metrics(self) -> dict[str, Any]:
        """Flat metrics: `eval/…` sampled, `eval/greedy…` greedy; intervals are clustered by prompt. `eval/samples` are all answers,
        and `eval/without_verdict` those of them on which a verifier failed."""
        s, failures = self.sampled, self.failures
        out: dict[str, Any] = _interval("eval/pass@1", s.pass_1)
        for k, interval in s.pass_k.items():
            out |= _interval(f"eval/pass@{k}", interval)
        out |= {f"eval/maj@{k}": value for k, value in s.maj_k.items()}
        out |= {
            "eval/n": s.pass_1.n,
            "eval/think": s.think,
            "eval/length/mean": s.mean_tokens,
            "eval/truncated": s.truncated,
            "eval/samples": failures.samples,
            "eval/without_verdict": failures.failed,
        }
        out |= {f"eval/{name}": value for name, value in s.episodes.items()}
        seconds = s.seconds
        if self.greedy is not None:
            out |= _interval("eval/greedy", self.greedy.pass_1)
            out |= {"eval/greedy/n": self.greedy.pass_1.n, "eval/greedy/think": self.greedy.think}
            seconds += self.greedy.seconds
        return out | {"eval/seconds": seconds}


def _interval(key: str, interval: Interval) -> dict[str, float]:
    return {
        key: interval.mean,
        f"{key}/low": interval.low,
        f"{key}/high": interval.high,
        f"{key}/half": interval.half_width,
    }


def measure(
    records: Sequence[SampleRecord],
    samples: int,
    ks: Sequence[int],
    seconds: float,
    places: Mapping[str, str] | None = None,
) -> MeasuredSamples:
    """Statistics of records that come in groups of `samples` per prompt; `places` are where rows stand, by their ids."""
    groups = [list(records[i : i + samples]) for i in range(0, len(records), samples)]
    counts = [GroupCounts.of(record.outcome for record in group) for group in groups]
    judged = [[r for r in group if r.is_judged] for group in groups]
    pass_k, maj_k = {}, {}
    for k in ks:
        # a prompt that lost samples to errors has fewer tries, which would lower pass@k
        full = [group for group in judged if len(group) >= k]
        if k == 1 or not full:
            continue
        pass_k[k] = pass_at_k_interval([(c.judged, c.right) for c in counts if c.judged >= k], k)
        maj_k[k] = fmean(maj_at_k([r.answer for r in group], [r.is_right for r in group], k) for group in full)
    return MeasuredSamples(
        pass_1=_pass_1(judged, samples),
        pass_k=pass_k,
        maj_k=maj_k,
        think=mean([float(has_thought(r.completion)) for r in records]),
        mean_tokens=mean([float(r.tokens) for r in records]),
        truncated=mean([float(r.truncated) for r in records]),
        failures=Failures.of(records, places),
        seconds=seconds,
        records=list(records),
        episodes=episode_stats(records) | turns_by_outcome(records),
    )


def _pass_1(judged: Sequence[Sequence[SampleRecord]], samples: int) -> Interval:
    """Mean share of right samples over prompts, from each prompt's judged samples; prompts without any are left out."""
    rights = [[float(r.is_right) for r in group] for group in judged if group]
    if samples == 1:
        return wilson(sum(group[0] == 1.0 for group in rights), len(rights))
    return clustered(rights)


def pass_1_of(records: Sequence[SampleRecord]) -> Interval:
    """pass@1 of records in any order, with an interval that is clustered by row where rows have several."""
    rows: dict[str, list[SampleRecord]] = {}
    for record in records:
        rows.setdefault(record.row, []).append(record)
    samples = max((len(group) for group in rows.values()), default=0)
    return _pass_1([[r for r in group if r.is_judged] for group in rows.values()], samples)


# Sample from a policy on rows and judge the answers: every prompt once, exact accounting, no loss forward.


class Evaluator:
    """Held-out rows with their golds, ready to be measured again and again during a run."""

    def __init__(
        self,
        spec: Eval,
        split: Split,
        judge: Judge,
        engine: Engine,
        policy: Policy,
        sampling: SamplingSettings,
        ranks: Ranks = ALONE,
        environment: Environment | None = None,
    ) -> None:
        """`sampling` gives the values that `spec` leaves unset; its seed is used in every round. With an `environment`
        each sample is an episode in one of the judge's worlds.
        """
        self.spec, self.rows, self.judge = spec, split.rows, judge
        self.episodes = episodes_of(environment, judge.worlds, engine, policy)
        self.engine, self.policy, self.ranks = engine, policy, ranks
        self.sampling = replace(
            sampling,
            max_tokens=spec.max_tokens or sampling.max_tokens,
            temperature=sampling.temperature if spec.temperature is None else spec.temperature,
        )
        self.tasks = RowTasks(
            split.rows, split.golds, policy.assistant_prefix if self.episodes is None else no_assistant_prefix
        )
        self.prompt_ids = [] if self.episodes else [policy.encode(row) for row in split.rows]

    def run(
        self, step: int, on_progress: Callable[[int, int], None] = lambda done, total: None, *, is_between: bool = False
    ) -> Evaluation:
        """Sample, judge and measure; `step` only marks the records. The same seed each time: paired over time.

        One that `is_between` the first and the last takes the first `eval.between` rows, without greedy decoding.
        """
        spec = self.spec
        few = min(self.n_sampled, spec.between or self.n_sampled) if is_between else self.n_sampled
        is_greedy, base = spec.greedy and not is_between, few * spec.samples
        total = base + (len(self.rows) if is_greedy else 0)
        sampled = self._measure(step, few, spec.samples, self.sampling, lambda n: on_progress(n, total))
        if not is_greedy:
            return Evaluation(sampled, None)
        return Evaluation(
            sampled,
            self._measure(
                step, len(self.rows), 1, replace(self.sampling, temperature=0.0), lambda n: on_progress(base + n, total)
            ),
        )

    @property
    def n_sampled(self) -> int:
        """How many rows are sampled: the first `eval.limit`; greedy decoding takes them all."""
        return min(len(self.rows), self.spec.limit or len(self.rows))

    def _measure(
        self, step: int, n: int, samples: int, settings: SamplingSettings, on_progress: Callable[[int], None]
    ) -> MeasuredSamples:
        began, rank, world = time.perf_counter(), self.ranks.rank, self.ranks.world
        # the first `n` rows: a small evaluation measures the same rows each time
        some = slice(rank, n, world)
        if self.episodes is not None:
            # the same worlds in every round: scores over time are paired
            play = self.episodes.open(self.rows[some], samples, settings.seed or 0)
            groups = play.generate(settings, on_progress=lambda done, _: on_progress(done))
        else:
            own = zip(self.prompt_ids[some], self.rows[some], strict=True)
            requests = [Request(ids, samples, images=row.images) for ids, row in own]
            groups = self.engine.generate(requests, settings, on_progress=lambda done, _: on_progress(done))
        flat = [completion for group in groups for completion in group]
        texts = texts_of(flat, self.policy.decode)
        places = [row for row in range(n)[some] for _ in range(samples)]
        tasks = [self.tasks[row] for row in places]
        found = judge_finished(self.judge, flat, texts, tasks)
        judgements = [j for at in range(0, len(found), samples) for j in self.judge.settled(found[at : at + samples])]
        local_records = [
            sample_record(
                (row := self.rows[at]),
                completion,
                text,
                judgement,
                step=step,
                group=row.id,
                reward=judgement.reward,
                assistant_prefix=self.tasks[at].assistant_prefix,
            )
            for at, completion, text, judgement in zip(places, flat, texts, judgements, strict=True)
        ]
        place = {row.id: i for i, row in enumerate(self.rows)}
        # restore the order of the rows, so that files and sums do not depend on the number of ranks
        records = sorted(self.ranks.gathered(local_records), key=lambda record: place[record.row])
        ks, seconds = [k for k in self.spec.k if k <= samples], time.perf_counter() - began
        measured = measure(records, samples, ks, seconds, {row.id: row.place for row in self.rows})
        self.judge.lines.see(measured.failures)
        return measured
