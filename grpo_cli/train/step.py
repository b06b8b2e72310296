"""THE LOOP TO READ: one step of GRPO, in the order it happens.

    rows      = select.choose(P)       which prompts
    samples   = sample(rows)           a group of completions for each
    groups    = judge(samples)         what a program says of each, and its reward
    (resample)                         the same again for groups without signal, where the recipe asks
    A         = advantages(rewards)    how much better than its own group
    (TRL)     loss(A) → gradient → optimizer step
    metrics   = close(...)             statistics, records, display

`trainer.py` calls these from TRL's hooks; everything here is plain code on plain records. A sample without a
verdict travels as None (NaN in tensors): it leaves the baseline, gets advantage 0, and is counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from grpo_cli.algorithm.advantage import group_advantages, leave_one_out, normalise_then_sum
from grpo_cli.algorithm.prune import kept_mask
from grpo_cli.curriculum.ledger import Visit
from grpo_cli.curriculum.resample import fill
from grpo_cli.curriculum.select import Selection
from grpo_cli.data.rows import Row
from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.protocol import Display
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import RecipeError, TrainingError
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.reward.placebo import placebo
from grpo_cli.reward.streaming import EarlyJudge
from grpo_cli.rollout.engine import Completion, Engine, Request, SamplingSettings
from grpo_cli.rollout.reuse.engine import PrefixReuse, reuse_metrics
from grpo_cli.rollout.vllm.server import ServerLost
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import step_stats, timing_stats
from grpo_verifiers.shaping import Shaped, build_term, shape
from grpo_verifiers.verdict import Verdict
from grpo_verifiers.verifier import BadOption

ERRORS_HINT = "a verifier or its sandbox fails; `stop.verifier_errors` sets the limit"


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
        """Seconds by phase and of the whole step; `update` is what is in no other phase."""
        whole = time.perf_counter() - self.began - self.seconds.pop("pause", 0.0)
        phases = {name: self.seconds.get(name, 0.0) for name in ("generate", "verify")}
        if "monitor" in self.seconds:
            phases["monitor"] = self.seconds["monitor"]
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
        ranks: Ranks | None = None,
        reuse: PrefixReuse | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.recipe, self.rows, self.judge_, self.engine, self.reuse = recipe, rows, judge, engine, reuse
        self.tokenizer, self.run, self.display = tokenizer, run, display
        self.tasks = [
            Task({name: golds[name][i] for name in golds}, row.prompt) for i, row in enumerate(rows)
        ]
        self.select = Selection(recipe.train.select, [row.id for row in rows], recipe.train.seed)
        self.terms = shaping_terms(recipe)
        self.early = EarlyJudge.where_it_pays(judge, self.decode)
        self.clock = Clock()
        self.generation = 0  # how many batches have been generated; saved with every checkpoint
        self.samples_seen = self.errors_seen = 0
        self.recent_s: list[float] = []
        self.groups: list[Group] = []  # the batch that is trained on
        self.drawn: list[Group] = []  # all that was sampled for it
        self.thrown: dict[str, float] = {}
        self.monitored: dict[str, float] = {}  # what monitors measured of this batch
        self.calls = 0  # of the engine in this step
        self.encoded: dict[int, list[int]] = {}  # prompts of this step
        self.advantages_PG = torch.zeros(0)
        self.kept_PG = torch.zeros(0, dtype=torch.bool)  # samples that pruning leaves in

    def draw(self, encode: Callable[[list[Any]], list[list[int]]]) -> list[Group]:
        """This step's groups: rows chosen, sampled, judged; drawn again while some must carry signal and do not.

        Raises:
            TrainingError: too many samples went without a verdict.
            ServerLost: everything a checkpoint keeps of this object is as it was before the call.
        """
        self.encode, self.drawn, self.calls = encode, [], 0
        self.encoded.clear()
        place, seen = self.select.place(), (self.samples_seen, self.errors_seen)
        try:
            self.groups = self.draw_groups(self.recipe.sample.prompts)
            if self.recipe.train.dead_groups == "resample":
                filled = fill(
                    self.groups, self.draw_groups, self.has_signal, self.recipe.train.resample_rounds
                )
                self.groups, self.thrown = filled.groups, filled.metrics()
        except ServerLost:
            self.select.go_back(place)
            self.samples_seen, self.errors_seen = seen
            raise
        self.select.see(
            self.generation, [Visit(g.row, g.right, g.judged, self.has_signal(g)) for g in self.drawn]
        )
        if self.reuse is not None:
            self.reuse.past.see({group.row: group.completions for group in self.drawn})
        self.generation += 1
        self._check_errors()
        return self.groups

    def draw_groups(self, n: int) -> list[Group]:
        """Groups of up to `n` rows that were not drawn in this step yet."""
        taken = {group.row for group in self.drawn}
        size = self.recipe.sample.group
        if not self.select.screens:
            groups = self.tried(self.select.choose(self.generation, n, taken), size)
        else:
            tried = self.tried(self.select.choose(self.generation, 2 * n, taken), size // 2)
            tried.sort(key=lambda g: abs(g.right / max(g.judged, 1) - 0.5))
            rest = self.tried([g.row for g in tried[:n]], size - size // 2, first=size // 2)
            groups = [first.joined(second) for first, second in zip(tried, rest, strict=False)]
            self.drawn += tried[n:]
        self.drawn += groups
        return groups

    def tried(self, rows: Sequence[int], size: int, first: int = 0) -> list[Group]:
        """A group of `size` judged samples for each row, on every rank; each rank samples and judges its share.

        The row has `first` samples of this step already.
        """
        self.calls += 1
        world, rank = self.ranks.world, self.ranks.rank
        mine = self.judge(self.sample(rows[rank::world], size, first))
        by_row = {group.row: group for group in self.ranks.gathered(mine)}
        groups = [by_row[row] for row in rows]
        self.samples_seen += len(groups) * size
        self.errors_seen += sum(j.reward is None for g in groups for j in g.judgements)
        return groups

    def has_signal(self, group: Group) -> bool:
        """Whether something can be learned from it."""
        return group.has_signal(self.recipe.train.std_floor)

    def sample(self, rows: Sequence[int], size: int, first: int = 0) -> list[tuple[int, list[Completion]]]:
        """`size` completions for each row, its samples from `first` on."""
        prompts = self.prompt_ids(rows)
        requests, total = [Request(ids, size) for ids in prompts], len(rows) * size
        self.display.phase("generate", 0, total)
        tasks = [self.tasks[row] for row in rows]
        listening = self.early.listening(tasks) if self.early is not None else nullcontext(None)
        generate = self.engine.generate
        if self.reuse is not None:
            generate = partial(self.reuse.generate, self.reuse.past.drafts(rows, first))
        with self.clock.phase("generate"), listening as on_finish:
            found = generate(
                requests,
                self.sampling(),
                on_finish=on_finish,
                on_progress=lambda done, _: self.display.phase("generate", done, total),
            )
        return list(zip(rows, found, strict=True))

    def prompt_ids(self, rows: Sequence[int]) -> list[list[int]]:
        """Token ids of these rows' prompts; a row is tokenised once in a step."""
        fresh = [row for row in dict.fromkeys(rows) if row not in self.encoded]
        if fresh:
            ids = self.encode([self.rows[row].messages or self.rows[row].prompt for row in fresh])
            self.encoded |= dict(zip(fresh, ids, strict=True))
        return [self.encoded[row] for row in rows]

    def sampling(self) -> SamplingSettings:
        """The recipe's sampling with a seed of this generation's own: no global random state is used."""
        s = self.recipe.sample
        seed = self.step_seed() + self.calls - 1  # a row that is sampled twice in a step gets new samples
        if self.engine.one_stream:  # each rank needs its own
            seed += 7919 * self.ranks.rank
        return SamplingSettings(
            max_tokens=s.max_tokens,
            temperature=s.temperature,
            top_p=s.top_p,
            top_k=s.top_k,
            min_p=s.min_p,
            repetition_penalty=s.repetition_penalty,
            seed=seed,
        )

    def step_seed(self) -> int:
        """A seed that depends on the recipe's seed and on how many batches were generated, on nothing else."""
        return hash((self.recipe.train.seed, self.generation)) & 0x7FFFFFFF

    def judge(self, sampled: Sequence[tuple[int, list[Completion]]]) -> list[Group]:
        """What the verifiers say of each completion, and its reward with shaping added."""
        flat = [(row, completion) for row, group in sampled for completion in group]
        texts = self.decode([c.token_ids for _, c in flat])
        self.display.phase("verify", 0, len(flat))
        with self.clock.phase("verify"):
            if self.early is not None:
                found = iter(self.early.judgements([len(group) for _, group in sampled]))
            else:
                found = iter(self.judge_.judge(texts, [self.tasks[row] for row, _ in flat]))
        groups, text = [], iter(texts)
        for row, completions in sampled:
            judged = [next(found) for _ in completions]
            said = [next(text) for _ in completions]
            rewards = [self.shape(j, c, t) for j, c, t in zip(judged, completions, said, strict=True)]
            if self.recipe.train.control is not None:
                key = f"{self.recipe.train.seed}/{self.generation}/{self.calls}/{row}"
                rewards = placebo(self.recipe.train.control, rewards, judged, key)
            groups.append(Group(row, completions, said, judged, rewards))
        return groups

    def decode(self, token_ids: list[list[int]]) -> list[str]:
        """Texts without special tokens."""
        texts: list[str] = self.tokenizer.batch_decode(token_ids, skip_special_tokens=True)
        return texts

    def shape(self, judged: Judgement, completion: Completion, text: str) -> float:
        """The reward with its shaping terms; NaN where there is no verdict."""
        if judged.reward is None:
            return math.nan
        tokens, most = len(completion.token_ids), self.recipe.sample.max_tokens
        return judged.reward + sum(shape(self.terms, Shaped(text, tokens, most, judged.is_right)).values())

    @property
    def rewards(self) -> list[float]:
        """Rewards of the whole batch, group by group."""
        return [reward for group in self.groups for reward in group.rewards]

    @property
    def mine(self) -> range:
        """This rank's stretch of the batch, in samples; a group may go on on the next rank."""
        return self.ranks.share(len(self.groups) * self.recipe.sample.group)

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """(P·G,) rewards to (P·G,) advantages by the recipe's algorithm."""
        train, rewards_PG = self.recipe.train, rewards.view(-1, self.recipe.sample.group)
        floor, ddof, prune = train.std_floor, train.std_ddof, train.prune
        self.kept_PG = torch.ones(rewards_PG.shape, dtype=torch.bool, device=rewards.device)
        if prune is not None and prune.by == "variance":
            self.kept_PG = kept_mask(rewards_PG, prune.keep, "variance")
            rewards_PG = rewards_PG.masked_fill(~self.kept_PG, math.nan)
        if train.reward_combine == "normalise_then_sum":
            scores_PGK, weights_K = self.scores()
            self.advantages_PG = normalise_then_sum(scores_PGK, weights_K, ddof=ddof, floor=floor)
        elif train.baseline == "leave_one_out":
            self.advantages_PG = leave_one_out(rewards_PG, floor=floor)
        else:
            self.advantages_PG = group_advantages(rewards_PG, scale=train.scale, ddof=ddof, floor=floor)
        if prune is not None and prune.by == "advantage":
            self.kept_PG = kept_mask(self.advantages_PG, prune.keep, "advantage")
            self.advantages_PG = self.advantages_PG * self.kept_PG
        self.display.phase("update")
        return self.advantages_PG.flatten()

    def scores(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(P, G, K) scores of the K parts of the reward, and their weights."""
        weights = {name: spec.weight for name, spec in self.judge_.specs.items() if spec.weight}
        parts = [
            [
                [_score(j.verdicts[name]) for name in weights] + [reward - (j.reward or 0.0)]
                for j, reward in zip(group.judgements, group.rewards, strict=True)
            ]
            for group in self.groups
        ]
        return torch.tensor(parts), torch.tensor([*weights.values(), 1.0])  # shaping is the last part

    def close(self, trained: dict[str, float]) -> dict[str, Any]:
        """Write this step's records, show them, and return its metrics; `trained` is what its updates measured."""
        step, records = self.generation, self.records()
        metrics: dict[str, Any] = {"step": step}
        metrics |= step_stats(records, self.recipe.sample.group, [1, self.recipe.sample.group])
        metrics |= trained | self.select.metrics() | self.thrown | self.monitored | gpu_memory()
        metrics["entropy/sampled"] = self.sampled_entropy()
        self.monitored = {}
        metrics["tokens/drawn"] = sum(group.generated for group in self.drawn)
        if self.reuse is not None:
            metrics |= reuse_metrics(c for group in self.drawn for c in group.completions)
        phases, whole = self.clock.lap()
        metrics |= timing_stats(
            phases,
            metrics["tokens/drawn"],
            step_s=whole,
            recent_s=self.recent_s,
            steps_left=self.recipe.train.steps - step,
        )
        self.recent_s = [*self.recent_s[-19:], whole]
        self.run.write_samples(step, records)
        self.run.write_metrics(metrics)
        self.display.step(metrics, view_samples(records))
        return metrics

    def sampled_entropy(self) -> float | None:
        """-log p of the tokens sampled in this step, over all groups of the batch, dropped ones among them.

        An unbiased estimate of the policy's entropy where the samples come from the policy; None where they do not.
        """
        if self.sampling().truncates:
            return None
        logps = [p for group in self.groups for c in group.completions for p in c.logps[c.kept :]]
        return -math.fsum(logps) / len(logps) if logps else None

    def row_ids(self, samples: Sequence[int]) -> list[str]:
        """The rows of samples of this step, counted in generation order; each row once."""
        size = self.recipe.sample.group
        return sorted({self.rows[self.groups[sample // size].row].id for sample in samples})

    def records(self) -> list[SampleRecord]:
        """One record a sample, groups in order."""
        advantages = iter(self.advantages_PG.flatten().tolist())
        found = []
        for number, group in enumerate(self.groups):
            row = self.rows[group.row]
            for completion, text, judgement, reward in zip(
                group.completions, group.texts, group.judgements, group.rewards, strict=True
            ):
                found.append(
                    SampleRecord(
                        step=self.generation,
                        row=row.id,
                        group=f"{self.generation}/{number}",
                        prompt=row.prompt,
                        completion=text,
                        fields=row.fields,
                        verdicts=judgement.verdicts,
                        outcome=judgement.outcome,
                        reward=None if math.isnan(reward) else reward,
                        advantage=next(advantages),
                        tokens=len(completion.token_ids),
                        truncated=completion.finish == "length",
                    )
                )
        return found

    def _check_errors(self) -> None:
        share, allowed = self.errors_seen / self.samples_seen, self.recipe.stop.verifier_errors
        if self.samples_seen >= 64 and share > allowed:
            cause = why_no_verdict(j.verdicts for g in self.drawn for j in g.judgements)
            raise TrainingError(
                f"{share:.1%} of {self.samples_seen} samples went without a verdict (limit {allowed:.0%}): {cause}",
                hint=ERRORS_HINT,
            )


def why_no_verdict(judged: Iterable[Mapping[str, Verdict]]) -> str:
    """The first verifier that gave no verdict, with its reason."""
    for verdicts in judged:
        for name, verdict in verdicts.items():
            if verdict.score is None:
                return f"`{name}`: {verdict.reason}: {verdict.detail}"
    return "see the samples"


def shaping_terms(recipe: Recipe) -> dict[str, tuple[float, Callable[[Shaped], float]]]:
    """Weight and function of each shaping term; `train.overlong` is one of weight 1.

    Raises:
        RecipeError: an option that the term does not have.
    """
    terms = {}
    if recipe.train.overlong:
        terms["overlong"] = (1.0, build_term("overlong", cache=recipe.train.overlong))
    for name, spec in recipe.shaping.items():
        try:
            terms[name] = (spec.weight, build_term(name, **spec.options))
        except BadOption as err:
            raise RecipeError(str(err), place=f"`shaping.{name}`") from err
    return terms


def gpu_memory() -> dict[str, float]:
    """Peak and whole memory of this process's GPU in GiB; nothing on a CPU."""
    if not torch.cuda.is_available():
        return {}
    whole = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return {"memory/peak_gib": torch.cuda.max_memory_allocated() / 2**30, "memory/total_gib": whole / 2**30}


def _score(verdict: Verdict) -> float:
    return math.nan if verdict.score is None else verdict.score
