"""Turns of episodes that go on from what was kept: the same tokens and log-probs, and only new ids go through the model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from grpo_cli.rollout.decoding.rollout_mode import Forward
from grpo_cli.rollout.engine import CacheSlot, Completion, Request, SamplingSettings
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.graph.stepper import GraphStepper
from tests.builders.rollout_models import prompts, tiny

TURNS, BUDGET = 5, 60


class Counted(Forward):
    """Counts the tokens that go through the model before the first new one of a turn."""

    tokens = 0

    def __call__(self, phase: Any, tokens: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        if tokens.shape[1] > 1:
            self.tokens += tokens.numel()
        return super().__call__(phase, tokens, *more, **named)


def engine(model: Any, max_rows: int = 64, captured: bool = False) -> GraphEngine:
    made = GraphEngine(model, [3, 5], max_rows=max_rows)
    made.forward = Counted(model)
    if captured:
        made.stepper = GraphStepper(made.forward, steps=4, capture=lambda step: step)
    return made


def conversation(
    made: GraphEngine, starts: Sequence[list[int]], play: int | None, seed: int = 0
) -> list[list[Completion]]:
    """Turns of up to 6 tokens with observations of 1 to 5 between them; one episode in three ends each turn."""
    draw, ids = random.Random(seed), [list(start) for start in starts]
    said: list[list[Completion]] = [[] for _ in starts]
    live = list(range(len(starts)))
    for turn in range(TURNS):
        slots = [None if play is None else CacheSlot(play, i, len(starts), 12 + BUDGET) for i in live]
        asked = [Request(ids[i], 1, 100 * turn + i, slot=slot) for i, slot in zip(live, slots, strict=True)]
        for i, (completion,) in zip(live, made.generate(asked, SamplingSettings(6)), strict=True):
            said[i].append(completion)
            ids[i] += completion.token_ids + [draw.randrange(6, 60) for _ in range(1 + (i + turn) % 5)]
        live = [i for i in live if (i + turn) % 3]
    return said


def same(a: list[list[Completion]], b: list[list[Completion]]) -> None:
    for one, other in zip(a, b, strict=True):
        assert [c.token_ids for c in one] == [c.token_ids for c in other]
        for x, y in zip(one, other, strict=True):
            assert x.logps == pytest.approx(y.logps, abs=1e-4)


@pytest.mark.parametrize("family", ["Llama", "Llama-untied-mha", "Qwen3", "Gemma", "Mistral"])
@pytest.mark.parametrize("captured", [False, True])
def test_turns_are_the_same_with_and_without_what_was_kept(family: str, captured: bool) -> None:
    model = tiny(family)
    starts = prompts(9, shortest=2)
    same(conversation(engine(model, captured=captured), starts, 1), conversation(engine(model), starts, None))


def test_episodes_that_do_not_run_at_once_go_on_from_what_was_kept_too() -> None:
    model, starts = tiny(), prompts(9, shortest=2)
    same(conversation(engine(model, max_rows=2), starts, 1), conversation(engine(model), starts, None))


def test_only_new_ids_go_through_the_model_and_equal_prompts_once() -> None:
    model = tiny()
    starts = [[7, 8, 9, 10]] * 6
    kept, anew = engine(model), engine(model)
    same(conversation(kept, starts, 1), conversation(anew, starts, None))
    assert kept.forward.tokens < anew.forward.tokens / 2  # type: ignore[attr-defined]


def test_another_play_takes_nothing_from_the_one_before() -> None:
    model, starts = tiny(), [[7, 8], [9, 10]]
    made = engine(model)
    conversation(made, starts, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)  # in place, as an optimizer does
    longer = [[*start, 11, 12] for start in starts]
    same(conversation(made, longer, 2), conversation(engine(model), longer, None))


def test_a_request_that_is_not_what_was_kept_is_computed_anew() -> None:
    made = engine(tiny())
    slot = CacheSlot(1, 0, 1, 40)
    settings = SamplingSettings(3)
    made.generate([Request([7, 8, 9], 1, 1, slot=slot)], settings)
    other = made.generate([Request([7, 6, 9, 9, 9, 9, 9], 1, 1, slot=slot)], settings)
    assert other == engine(tiny()).generate([Request([7, 6, 9, 9, 9, 9, 9], 1, 1)], settings)


def test_without_memory_for_the_cache_every_turn_is_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_cli.rollout.graph.caches.free_bytes", lambda device: 1)
    model, starts = tiny(), prompts(4, shortest=2)
    same(conversation(engine(model), starts, 1), conversation(engine(model), starts, None))
