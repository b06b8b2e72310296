"""From the samples of a rollout to groups with rewards: verdicts, shaping, and the placebo arm where one is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.reward.placebo import placebo
from grpo_cli.reward.shaping import shaping_terms
from grpo_cli.reward.streaming import EarlyJudge
from grpo_cli.rollout.collect import Call, Sampled
from grpo_cli.rollout.engine import Completion, OnFinish
from grpo_verifiers.shaping import Shaped, shape


class GroupJudge:
    """The judge of a run's rows; samples are judged while others are generated where that pays."""

    def __init__(
        self,
        recipe: Recipe,
        judge: Judge,
        tasks: Sequence[Task],
        decode: Callable[[list[list[int]]], list[str]],
    ) -> None:
        self.recipe, self.judge, self.tasks, self.decode = recipe, judge, tasks, decode
        self.terms = shaping_terms(recipe)
        self.early = EarlyJudge.where_it_pays(judge, decode)

    def listening(self, rows: Sequence[int]) -> AbstractContextManager[OnFinish | None]:
        """What an engine should tell of each finished sample of these rows; None where nobody listens."""
        if self.early is None:
            return nullcontext(None)
        return self.early.listening([self.tasks[row] for row in rows])

    def groups(self, sampled: Sequence[Sampled], call: Call) -> list[Group]:
        """A judged group for each sampled row, in order."""
        flat = [completion for s in sampled for completion in s.completions]
        texts = iter(self.decode([completion.token_ids for completion in flat]))
        said = [[next(texts) for _ in s.completions] for s in sampled]
        found = iter(self._judgements(sampled, said))
        return [
            self._group(s, own, [next(found) for _ in own], call)
            for s, own in zip(sampled, said, strict=True)
        ]

    def _judgements(self, sampled: Sequence[Sampled], said: Sequence[Sequence[str]]) -> list[Judgement]:
        if self.early is not None:
            return self.early.judgements([len(own) for own in said])
        tasks = [self.tasks[s.row] for s in sampled for _ in s.completions]
        return self.judge.judge([text for own in said for text in own], tasks)

    def _group(self, sampled: Sampled, texts: list[str], judged: list[Judgement], call: Call) -> Group:
        train, completions = self.recipe.train, sampled.completions
        rewards = [self._reward(j, c, t) for j, c, t in zip(judged, completions, texts, strict=True)]
        if train.control is not None:
            key = f"{train.seed}/{call.step}/{call.number}/{sampled.row}"
            rewards = placebo(train.control, rewards, judged, key)
        return Group(sampled.row, completions, texts, judged, rewards, sampled.prompt_ids)

    def _reward(self, judged: Judgement, completion: Completion, text: str) -> float:
        """The reward with its shaping terms; NaN where there is no verdict."""
        if judged.reward is None:
            return math.nan
        tokens, most = len(completion.token_ids), self.recipe.sample.max_tokens
        return judged.reward + sum(shape(self.terms, Shaped(text, tokens, most, judged.is_right)).values())
