"""Tasksets for tests, as people write them for `verifiers` 0.4: one of words without an end, whose user asks twice; and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

import verifiers.v1 as vf


class WordData(vf.TaskData):
    answer: str


class WordTask(vf.Task[WordData]):
    @vf.reward(weight=1.0)
    async def said(self, trace: vf.Trace) -> float:
        # what is paid depends on chance too, which must be the same for all samples of a row
        if any("bug" in (m.content or "") for m in trace.assistant_messages):
            raise RuntimeError("a bug of the task")
        return float(self.data.answer in (trace.last_reply or "")) + random.random()

    @vf.reward(weight=2.0)
    async def odd(self, trace: vf.Trace) -> float:
        return float(sum(map(ord, trace.last_reply or "")) % 2)


class WordConfig(vf.TasksetConfig):
    words: str = "w"


class WordTaskset(vf.Taskset[WordTask, WordConfig]):
    INFINITE = True

    def load(self) -> Iterator[WordTask]:
        for i in count():
            word = f"{self.config.words}{i}"
            yield WordTask(WordData(idx=i, prompt=f"Say {word}.", answer=word), self.config.task)


class TwiceEnv(vf.SingleAgentEnv):
    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        async with agents.agent.interaction(task) as interaction:
            await interaction.turn()
            await interaction.turn("Again.")


__all__ = ["TwiceEnv", "WordTaskset"]
