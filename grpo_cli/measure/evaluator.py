"""Ask a policy about rows and judge what it says: every prompt once, exact accounting, no loss forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from grpo_cli.data.split import Split
from grpo_cli.distributed.ranks import Alone, Shared
from grpo_cli.measure.evaluation import Evaluation, MeasuredSamples, measure
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.course import Eval
from grpo_cli.recipe.sections.environment import Environment
from grpo_cli.reward.judge import Judge, Judgement
from grpo_cli.reward.record import sample_record
from grpo_cli.reward.spoken import judge_spoken, texts_of
from grpo_cli.reward.tasks import RowTasks, no_assistant_prefix
from grpo_cli.rollout.engine import Completion, Engine, Request, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes
from grpo_cli.run.records import SampleRecord


class Evaluator:
    """Held-out rows with their golds, ready to be asked again and again during a run."""

    def __init__(
        self,
        spec: Eval,
        split: Split,
        judge: Judge,
        engine: Engine,
        policy: Policy,
        sampling: SamplingSettings,
        shared: Shared | None = None,
        environment: Environment | None = None,
    ) -> None:
        """`sampling` holds for all that `spec` leaves open; its seed is that of every round. With an `environment` each sample
        is an episode in one of the judge's worlds.
        """
        self.spec, self.rows, self.judge = spec, split.rows, judge
        self.episodes = Episodes.where_asked(environment, judge.worlds, engine, policy)
        self.engine, self.policy, self.shared = engine, policy, shared or Alone()
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
        self,
        step: int,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        is_between: bool = False,
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
                step,
                len(self.rows),
                1,
                replace(self.sampling, temperature=0.0),
                lambda n: on_progress(base + n, total),
            ),
        )

    @property
    def n_sampled(self) -> int:
        """How many rows are sampled: the first `eval.limit`; greedy decoding takes them all."""
        return min(len(self.rows), self.spec.limit or len(self.rows))

    def _measure(
        self, step: int, n: int, samples: int, settings: SamplingSettings, on_progress: Callable[[int], None]
    ) -> MeasuredSamples:
        began, rank, world = time.perf_counter(), self.shared.rank, self.shared.world
        # of the first `n` rows: an evaluation in between measures the same rows each time
        some = slice(rank, n, world)
        flat = self._completions(some, samples, settings, on_progress)
        texts = texts_of(flat, self.policy.decode)
        tasks = [self.tasks[row] for row in range(n)[some] for _ in range(samples)]
        found = judge_spoken(self.judge, flat, texts, tasks)
        judgements = [
            j for at in range(0, len(found), samples) for j in self.judge.settled(found[at : at + samples])
        ]
        local_records = self._records(step, samples, range(n)[rank::world], flat, texts, judgements)
        place = {row.id: i for i, row in enumerate(self.rows)}
        # back into the order of the rows, so that files and sums do not depend on the number of ranks
        records = sorted(self.shared.gathered(local_records), key=lambda record: place[record.row])
        ks, seconds = [k for k in self.spec.k if k <= samples], time.perf_counter() - began
        measured = measure(records, samples, ks, seconds, {row.id: row.place for row in self.rows})
        self.judge.lines.see(measured.failures)
        return measured

    def _completions(
        self, some: slice, samples: int, settings: SamplingSettings, on_progress: Callable[[int], None]
    ) -> list[Completion]:
        """`samples` of each of some rows, one row after the other."""

        def progressed(done: int, _: int) -> None:
            on_progress(done)

        if self.episodes is not None:
            # the same worlds in every round: scores over time are paired
            play = self.episodes.open(self.rows[some], samples, settings.seed or 0)
            groups = play.generate(settings, on_progress=progressed)
        else:
            asked = [Request(ids, samples) for ids in self.prompt_ids[some]]
            groups = self.engine.generate(asked, settings, on_progress=progressed)
        return [completion for group in groups for completion in group]

    def _records(
        self,
        step: int,
        samples: int,
        places: Sequence[int],
        completions: Sequence[Completion],
        texts: Sequence[str],
        judgements: Sequence[Judgement],
    ) -> list[SampleRecord]:
        return [
            sample_record(
                (row := self.rows[place]),
                completion,
                text,
                judgement,
                step=step,
                group=row.id,
                reward=judgement.reward,
                assistant_prefix=self.tasks[place].assistant_prefix,
            )
            for place, completion, text, judgement in zip(
                (place for place in places for _ in range(samples)),
                completions,
                texts,
                judgements,
                strict=True,
            )
        ]
