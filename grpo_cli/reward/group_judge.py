"""From the samples of a rollout to groups with rewards: verdicts, shaping, and the placebo arm where one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judge, Judgement
from grpo_cli.reward.marks import CreditMarker
from grpo_cli.reward.pay import RewardRule
from grpo_cli.reward.spoken import judge_spoken, texts_of
from grpo_cli.reward.streaming import StreamingJudge
from grpo_cli.reward.tasks import RowTasks
from grpo_cli.rollout.collect import EngineCall, RowCompletions
from grpo_cli.rollout.engine import OnFinish


class GroupJudge:
    """The judge of a run's rows; samples are judged while others are generated where that pays."""

    def __init__(
        self,
        recipe: Recipe,
        judge: Judge,
        tasks: RowTasks,
        decode: Callable[[list[list[int]]], list[str]],
    ) -> None:
        self.recipe, self.judge, self.tasks, self.decode = recipe, judge, tasks, decode
        self.pay = RewardRule(recipe)
        self.early = StreamingJudge.where_it_pays(judge, decode)
        self.marks = CreditMarker(recipe.train.credit, decode) if recipe.train.credit is not None else None

    def listening(self, rows: Sequence[int]) -> AbstractContextManager[OnFinish | None]:
        """What an engine should tell of each finished sample of these rows; None where nobody listens."""
        if self.early is None:
            return nullcontext(None)
        return self.early.listening([self.tasks[row] for row in rows])

    def groups(self, sampled: Sequence[RowCompletions], call: EngineCall) -> list[Group]:
        """A judged group for each sampled row, in order."""
        flat = [completion for s in sampled for completion in s.completions]
        texts = iter(texts_of(flat, self.decode))
        said = [[next(texts) for _ in s.completions] for s in sampled]
        found = iter(self._judgements(sampled, said))
        return [
            self._group(s, own, [next(found) for _ in own], call)
            for s, own in zip(sampled, said, strict=True)
        ]

    def _judgements(
        self, sampled: Sequence[RowCompletions], said: Sequence[Sequence[str]]
    ) -> list[Judgement]:
        if self.early is not None:
            return self.early.judgements([len(own) for own in said])
        tasks = [self.tasks[s.row] for s in sampled for _ in s.completions]
        completions = [completion for s in sampled for completion in s.completions]
        return judge_spoken(self.judge, completions, [text for own in said for text in own], tasks)

    def _group(
        self, sampled: RowCompletions, texts: list[str], judged: list[Judgement], call: EngineCall
    ) -> Group:
        # only now is the group whole: what no answer is worth depends on the others' scores
        judged, completions = self.judge.settled(judged), sampled.completions
        if self.marks is not None:
            completions = self.marks.put(completions)
        # of the call too: a row that is sampled twice in a step has another chance as a placebo
        place = f"{call.step}/{call.number}/{sampled.row}"
        spoken, invalid = [c.spoken for c in completions], [c.invalid for c in completions]
        paid = self.pay.of(judged, texts, spoken, place, invalid)
        return Group(
            sampled.row,
            completions,
            texts,
            judged,
            paid.rewards,
            sampled.prompt_ids,
            self.tasks[sampled.row].assistant_prefix,
            paid.outcomes,
        )
