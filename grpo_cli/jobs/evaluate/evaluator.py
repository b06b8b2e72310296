"""Measure a model with the recipe's verifier: every prompt once, exact accounting, no loss forward.

pass@1 is the mean over prompts of their share of right samples; its interval is clustered by prompt, since the
samples of one prompt are not independent. A sample without a verdict counts neither way and is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from grpo_cli.distributed.ranks import Alone, Shared
from grpo_cli.policy.tokens import encode
from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.estimate import Interval, clustered, maj_at_k, pass_at_k_interval, wilson
from grpo_cli.statistics.step import mean
from grpo_verifiers.thinking import has_thought
from grpo_verifiers.verdict import Outcome

if TYPE_CHECKING:
    from grpo_cli.data.rows import Row
    from grpo_cli.recipe.sections.recipe import Eval
    from grpo_cli.rollout.engine import Completion, Engine


@dataclass(frozen=True)
class Measured:
    """One way of sampling, measured: pass@1 with its interval, pass@k and maj@k, and the records behind them."""

    pass_1: Interval
    pass_k: dict[int, Interval]
    maj_k: dict[int, float]
    think: float | None
    mean_tokens: float | None
    truncated: float | None
    without_verdict: int
    seconds: float
    records: list[SampleRecord]


@dataclass(frozen=True)
class Evaluation:
    """A model measured with sampling (the headline) and greedily (None where switched off)."""

    sampled: Measured
    greedy: Measured | None

    def as_metrics(self) -> dict[str, Any]:
        """Flat metrics: `eval/…` sampled, `eval/greedy…` greedy; intervals are clustered by prompt."""
        s = self.sampled
        out: dict[str, Any] = _interval("eval/pass@1", s.pass_1)
        for k, interval in s.pass_k.items():
            out |= _interval(f"eval/pass@{k}", interval)
        out |= {f"eval/maj@{k}": value for k, value in s.maj_k.items()}
        out |= {
            "eval/n": s.pass_1.n,
            "eval/think": s.think,
            "eval/length/mean": s.mean_tokens,
            "eval/truncated": s.truncated,
            "eval/without_verdict": s.without_verdict,
        }
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
        f"{key}/half": interval.half,
    }


class Evaluator:
    """Held-out rows with their golds, ready to be asked again and again during a run."""

    def __init__(
        self,
        spec: Eval,
        rows: Sequence[Row],
        golds: dict[str, list[Any]],
        judge: Judge,
        engine: Engine,
        tokenizer: Any,
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        shared: Shared | None = None,
    ) -> None:
        self.shared = shared or Alone()
        self.spec, self.rows, self.judge = spec, rows, judge
        self.engine, self.tokenizer, self.seed = engine, tokenizer, seed
        self.max_tokens, self.temperature = spec.max_tokens or max_tokens, _temperature(spec, temperature)
        self.tasks = [
            Task({name: golds[name][i] for name in golds}, row.prompt) for i, row in enumerate(rows)
        ]
        self.prompt_ids = [encode(tokenizer, row) for row in rows]

    def run(
        self, step: int, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> Evaluation:
        """Sample, judge and measure; `step` only marks the records. The same seed each time: paired over time."""
        few, base = self.n_sampled, self.n_sampled * self.spec.samples
        total = base + (len(self.rows) if self.spec.greedy else 0)
        sampled = self._measure(
            step, few, self.spec.samples, self.temperature, lambda n: on_progress(n, total)
        )
        if not self.spec.greedy:
            return Evaluation(sampled, None)
        return Evaluation(
            sampled, self._measure(step, len(self.rows), 1, 0.0, lambda n: on_progress(base + n, total))
        )

    @property
    def n_sampled(self) -> int:
        """How many rows are sampled: the first `eval.limit`; greedy decoding takes them all."""
        return min(len(self.rows), self.spec.limit or len(self.rows))

    def _measure(
        self, step: int, n: int, samples: int, temperature: float, on_progress: Callable[[int], None]
    ) -> Measured:
        from grpo_cli.rollout.engine import Request, SamplingSettings

        began, rank, world = time.perf_counter(), self.shared.rank, self.shared.world
        settings = SamplingSettings(max_tokens=self.max_tokens, temperature=temperature, seed=self.seed)
        groups = self.engine.generate(
            [Request(ids, samples) for ids in self.prompt_ids[rank:n:world]],
            settings,
            on_progress=lambda done, _: on_progress(done),
        )
        flat = [completion for group in groups for completion in group]
        texts = self.tokenizer.batch_decode([c.token_ids for c in flat], skip_special_tokens=True)
        tasks = [task for task in self.tasks[rank:n:world] for _ in range(samples)]
        judgements = self.judge.judge(texts, tasks)
        mine = self._records(step, samples, self.rows[rank:n:world], flat, texts, judgements)
        place = {row.id: i for i, row in enumerate(self.rows)}
        records = sorted(self.shared.gathered(mine), key=lambda record: place[record.row])
        return measure(
            records, samples, [k for k in self.spec.k if k <= samples], time.perf_counter() - began
        )

    def _records(
        self,
        step: int,
        samples: int,
        rows: Sequence[Row],
        completions: Sequence[Completion],
        texts: Sequence[str],
        judgements: Sequence[Judgement],
    ) -> list[SampleRecord]:
        found = []
        for i, (completion, text, judgement) in enumerate(zip(completions, texts, judgements, strict=True)):
            row = rows[i // samples]
            found.append(
                SampleRecord(
                    step=step,
                    row=row.id,
                    group=row.id,
                    prompt=row.prompt,
                    completion=text,
                    fields=row.fields,
                    verdicts=judgement.verdicts,
                    outcome=judgement.outcome,
                    reward=judgement.reward,
                    advantage=None,
                    tokens=len(completion.token_ids),
                    truncated=completion.finish == "length",
                )
            )
        return found


def measure(records: Sequence[SampleRecord], samples: int, ks: Sequence[int], seconds: float) -> Measured:
    """Statistics of records that come in groups of `samples` per prompt."""
    groups = [list(records[i : i + samples]) for i in range(0, len(records), samples)]
    judged = [[r for r in group if r.outcome not in (None, Outcome.ERROR)] for group in groups]
    rights = [[float(r.outcome is Outcome.RIGHT) for r in group] for group in judged if group]
    flat = [right for group in rights for right in group]
    pass_k, maj_k = {}, {}
    for k in ks:
        full = [group for group in judged if len(group) >= k]
        if k == 1 or not full:
            continue
        pass_k[k] = pass_at_k_interval([(len(group), _rights(group)) for group in full], k)
        maj_k[k] = fmean(
            maj_at_k([_answer(r) for r in group], [_is_right(r) for r in group], k) for group in full
        )
    return Measured(
        pass_1=wilson(sum(flat), len(flat)) if samples == 1 else clustered(rights),
        pass_k=pass_k,
        maj_k=maj_k,
        think=mean([float(has_thought(r.completion)) for r in records]),
        mean_tokens=mean([float(r.tokens) for r in records]),
        truncated=mean([float(r.truncated) for r in records]),
        without_verdict=len(records) - len(flat),
        seconds=seconds,
        records=list(records),
    )


def _rights(group: Sequence[SampleRecord]) -> int:
    return sum(_is_right(r) for r in group)


def _is_right(record: SampleRecord) -> bool:
    return record.outcome is Outcome.RIGHT


def _answer(record: SampleRecord) -> str | None:
    return next((v.answer for v in record.verdicts.values() if v.answer is not None), None)


def _temperature(spec: Eval, default: float) -> float:
    return default if spec.temperature is None else spec.temperature
