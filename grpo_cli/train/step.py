"""THE LOOP TO READ: one step of GRPO, in the order it happens.

    rows      = choose_rows()          which prompts
    samples   = sample(prompts)        a group of completions for each
    rewards   = judge(completions)     what a program says of each
    A         = advantages(rewards)    how much better than its own group
    (TRL)     loss(A) → gradient → optimizer step
    metrics   = close(...)             statistics, records, display

`trainer.py` calls these from TRL's hooks; everything here is plain code on plain records. A sample without a
verdict travels as None (NaN in tensors): it leaves the baseline, gets advantage 0, and is counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from grpo_cli.data.rows import Row
from grpo_cli.display import Display, view_samples
from grpo_cli.errors import TrainingError
from grpo_cli.judge import Judge, Judgement, Task
from grpo_cli.recipe.models import Recipe
from grpo_cli.records import SampleRecord
from grpo_cli.run.folder import RunFolder
from grpo_cli.stats import step_stats, timing_stats
from grpo_cli.train.advantage import group_advantages, leave_one_out
from grpo_cli.train.rollout.engine import Completion, Engine, Request, SamplingSettings
from grpo_cli.train.select import Uniform


@dataclass
class Clock:
    """Seconds spent in each phase since the last step was closed; `pause` (evaluating, saving) is no part of a step."""

    began: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside to `name`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def lap(self) -> tuple[dict[str, float], float]:
        """Seconds by phase and of the whole step; `update` is what is neither generation nor verification."""
        whole = time.perf_counter() - self.began - self.seconds.pop("pause", 0.0)
        phases = {name: self.seconds.get(name, 0.0) for name in ("generate", "verify")}
        phases["update"] = max(0.0, whole - sum(phases.values()))
        self.began, self.seconds = time.perf_counter(), {}
        return phases, whole


class GrpoStep:
    """The state of one run between TRL's hooks: what was chosen, sampled and judged in this step."""

    def __init__(
        self,
        recipe: Recipe,
        rows: Sequence[Row],
        golds: dict[str, list[Any]],
        judge: Judge,
        engine: Engine,
        tokenizer: Any,
        run: RunFolder,
        display: Display,
    ) -> None:
        self.recipe, self.rows, self.judge_, self.engine = recipe, rows, judge, engine
        self.tokenizer, self.run, self.display = tokenizer, run, display
        self.tasks = [
            Task({name: golds[name][i] for name in golds}, row.prompt) for i, row in enumerate(rows)
        ]
        self.select = Uniform(len(rows), recipe.sample.prompts, recipe.train.seed)
        self.clock = Clock()
        self.generation = 0  # how many batches have been generated; saved with every checkpoint
        self.samples_seen = self.errors_seen = 0
        self.recent_s: list[float] = []
        self.texts: list[str] = []
        self.chosen: list[int] = []
        self.completions: list[Completion] = []
        self.judgements: list[Judgement] = []
        self.advantages_PG = torch.zeros(0)

    def choose_rows(self) -> list[int]:
        """Indices of this generation's rows, each once."""
        self.chosen = self.select.choose(self.generation)
        return self.chosen

    def sample(self, prompt_ids: Sequence[list[int]]) -> list[list[int]]:
        """Token ids of a group of completions for each prompt; `prompt_ids` holds each prompt G times in a row."""
        group, total = self.recipe.sample.group, len(prompt_ids)
        requests = [Request(prompt_ids[i], group) for i in range(0, total, group)]
        self.display.phase("generate", 0, total)
        with self.clock.phase("generate"):
            groups = self.engine.generate(
                requests,
                self.sampling(),
                on_progress=lambda done, _: self.display.phase("generate", done, total),
            )
        self.completions = [completion for completions in groups for completion in completions]
        return [completion.token_ids for completion in self.completions]

    def sampling(self) -> SamplingSettings:
        """The recipe's sampling with a seed of this generation's own: no global random state is used."""
        s = self.recipe.sample
        return SamplingSettings(
            max_tokens=s.max_tokens,
            temperature=s.temperature,
            top_p=s.top_p,
            top_k=s.top_k,
            min_p=s.min_p,
            repetition_penalty=s.repetition_penalty,
            seed=self.step_seed(),
        )

    def step_seed(self) -> int:
        """A seed that depends on the recipe's seed and on how many batches were generated, on nothing else."""
        return hash((self.recipe.train.seed, self.generation)) & 0x7FFFFFFF

    def judge(self, completions: Sequence[str]) -> list[float]:
        """Rewards in order, NaN where there is no verdict.

        Raises:
            TrainingError: too many samples went without a verdict.
        """
        self.display.phase("verify", 0, len(completions))
        tasks = [self.tasks[row] for row in self.chosen for _ in range(self.recipe.sample.group)]
        self.texts = list(completions)
        with self.clock.phase("verify"):
            self.judgements = self.judge_.judge(self.texts, tasks)
        self.samples_seen += len(completions)
        self.errors_seen += sum(j.reward is None for j in self.judgements)
        self.generation += 1
        self._check_errors()
        return [float("nan") if j.reward is None else j.reward for j in self.judgements]

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """(P·G,) rewards to (P·G,) advantages by the recipe's algorithm."""
        train, rewards_PG = self.recipe.train, rewards.view(-1, self.recipe.sample.group)
        if train.baseline == "leave_one_out":
            self.advantages_PG = leave_one_out(rewards_PG, floor=train.std_floor)
        else:
            self.advantages_PG = group_advantages(
                rewards_PG, scale=train.scale, ddof=train.std_ddof, floor=train.std_floor
            )
        self.display.phase("update")
        return self.advantages_PG.flatten()

    def close(self, trained: dict[str, float]) -> dict[str, Any]:
        """Write this step's records, show them, and return its metrics; `trained` is what its updates measured."""
        step, records = self.generation, self.records()
        metrics: dict[str, Any] = {"step": step}
        metrics |= step_stats(records, self.recipe.sample.group, [1, self.recipe.sample.group])
        metrics |= trained
        phases, whole = self.clock.lap()
        metrics |= timing_stats(
            phases,
            sum(record.tokens for record in records),
            step_s=whole,
            recent_s=self.recent_s,
            steps_left=self.recipe.train.steps - step,
        )
        self.recent_s = [*self.recent_s[-19:], whole]
        self.run.write_samples(step, records)
        self.run.write_metrics(metrics)
        self.display.step(metrics, view_samples(records))
        return metrics

    def row_ids(self, samples: Sequence[int]) -> list[str]:
        """The rows of samples of this step, counted in generation order; each row once."""
        group = self.recipe.sample.group
        return sorted({self.rows[self.chosen[sample // group]].id for sample in samples})

    def records(self) -> list[SampleRecord]:
        """One record a sample, groups in order."""
        group = self.recipe.sample.group
        advantages = self.advantages_PG.flatten().tolist()
        found = []
        for i, (completion, judgement) in enumerate(zip(self.completions, self.judgements, strict=True)):
            row = self.rows[self.chosen[i // group]]
            found.append(
                SampleRecord(
                    step=self.generation,
                    row=row.id,
                    group=f"{self.generation}/{row.id}",
                    prompt=row.prompt,
                    completion=self.texts[i],
                    fields=row.fields,
                    verdicts=judgement.verdicts,
                    outcome=judgement.outcome,
                    reward=judgement.reward,
                    advantage=advantages[i],
                    tokens=len(completion.token_ids),
                    truncated=completion.finish == "length",
                )
            )
        return found

    def _check_errors(self) -> None:
        share, allowed = self.errors_seen / self.samples_seen, self.recipe.stop.verifier_errors
        if self.samples_seen >= 64 and share > allowed:
            first = next((v for j in self.judgements for v in j.verdicts.values() if v.score is None), None)
            cause = f"{first.reason}: {first.detail}" if first else "see the samples"
            raise TrainingError(
                f"{share:.1%} of {self.samples_seen} samples went without a verdict (limit {allowed:.0%}): {cause}",
                hint="a verifier or its sandbox fails; `stop.verifier_errors` sets the limit",
            )
