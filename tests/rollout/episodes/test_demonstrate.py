"""Demonstrations of an environment: an episode's very tokens, of which the model's own are imitated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from grpo_cli.environments.pool import Worlds
from grpo_cli.errors import RecipeError
from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.warmup import IGNORED, WarmupText, collate, content_key
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.rollout.episodes.play import demonstrations
from tests.rollout.episodes.test_same_episodes import rows


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_model(Model(path="builtin:tiny", context=1024), device=torch.device("cpu"), seed=0)


@pytest.fixture
def worlds() -> Iterator[Worlds]:
    made = Worlds("environments:keydoor", {}, workers=1)
    made.start()
    yield made
    made.close()


def test_a_longer_context_is_the_models_and_changes_no_weight(policy: Policy) -> None:
    assert policy.context == 1024
    plain = load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0)
    assert plain.context == 512
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), policy.model.parameters(), strict=True))


def test_what_the_environment_says_is_not_imitated(policy: Policy, worlds: Worlds) -> None:
    spec = Environment(python="environments:keydoor", max_turns=3)
    shown = demonstrations(spec, worlds, policy, rows(2), 4, 100)
    again = demonstrations(spec, worlds, policy, rows(2), 4, 100)
    assert shown == again
    for one in shown:
        assert one.mask is not None
        pieces = policy.tokenizer.batch_decode([one.prompt_ids, one.completion_ids], skip_special_tokens=False)
        assert pieces[0].endswith("<|assistant|>")
        turns = pieces[1].split("<|assistant|>")
        assert len(turns) == 3
        assert all(turn[0] in "nsew" and turn[1:].startswith("<|end|>") for turn in turns)
        assert sum(one.mask) == 6
        _, _, labels = collate([one], 0)
        learned = [label for label in labels[0].tolist() if label != IGNORED]
        assert learned == [token for token, own in zip(one.completion_ids, one.mask, strict=True) if own]


def test_a_mask_has_a_part_in_the_key_of_the_cache_and_its_absence_has_none() -> None:
    def key(mask: list[int] | None) -> str:
        return content_key("m", [[WarmupText([1], [2, 3], mask)]], [], 0)

    assert key(None) != key([1, 0]) != key([1, 1])


def test_an_environment_that_shows_nothing_is_no_teacher(policy: Policy) -> None:
    made = Worlds("tests.environments.bad_worlds:Plain", {}, workers=1)
    made.start()
    try:
        with pytest.raises(RecipeError, match="has no method `demonstrate`"):
            demonstrations(Environment(python="x:Plain"), made, policy, rows(1), 4, 100)
    finally:
        made.close()
