"""What a verifier reads of a completion: its text, or of an episode the transcript of its turns, or the answer it came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo_cli.reward.judge import Judge, Judgement, Task
from grpo_cli.rollout.engine import Completion

Decode = Callable[[list[list[int]]], list[str]]


def texts_of(completions: Sequence[Completion], decode: Decode) -> list[str]:
    """The text of each."""
    # an episode has its transcript; its ids hold what the environment said too
    plain = iter(decode([c.token_ids for c in completions if c.episode is None]))
    return [next(plain) if c.episode is None else c.episode.judged for c in completions]


def judge_spoken(
    judge: Judge, completions: Sequence[Completion], texts: Sequence[str], tasks: Sequence[Task]
) -> list[Judgement]:
    """The judgement of each, in order, with what environments say of those that are episodes."""
    played = [None if c.episode is None else c.episode.played for c in completions]
    return judge.judge(texts, tasks, [c.token_ids for c in completions], played)
