"""Episodes of the embedded model in keydoor: the same whoever plays beside them, with the log-probs of a forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from grpo_cli.data.rows import Row
from grpo_cli.data.tasks import task_rows
from grpo_cli.environments.pool import Worlds
from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.inputs import Environment
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.rollout.engine import Completion, SamplingSettings
from grpo_cli.rollout.episodes.play import Episodes
from grpo_cli.rollout.make import make_engine
from tests.builders.rollout_models import plain_logps

SPEC = Environment(python="environments:keydoor", max_turns=6, turn_tokens=3)
SETTINGS = SamplingSettings(70, seed=11)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0)


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    made = Worlds("environments:keydoor", {}, workers=2)
    made.start()
    yield made
    made.close()


def rows(n: int) -> list[Row]:
    found = []
    for i, fields in enumerate(task_rows("keydoor", "train", {"grid": 4}, "")):
        if i == n:
            break
        messages: Any = [{"role": "user", "content": fields["question"]}]
        found.append(Row(f"row{i}", fields["question"], messages, fields))
    return found


def played(
    policy: Policy, worlds: Worlds, some: Sequence[Row], size: int = 3, max_rows: int = 256, first: int = 0
) -> dict[str, list[Completion]]:
    engine = make_engine("graph", policy.model, policy.tokenizer, end_ids=policy.end_ids, max_rows=max_rows)
    made = Episodes.where_asked(SPEC, worlds, engine, policy)
    assert made is not None
    play = made.open(some, size, 5, first)
    return dict(zip([row.id for row in some], play.generate(SETTINGS), strict=True))


def test_the_same_episodes_on_one_rank_two_ranks_fewer_rows_and_without_their_neighbours(
    policy: Policy, worlds: Worlds
) -> None:
    whole = played(policy, worlds, rows(4))
    ranks = played(policy, worlds, rows(4)[0::2]) | played(policy, worlds, rows(4)[1::2])
    tokens = {name: [c.token_ids for c in some] for name, some in whole.items()}
    assert {name: [c.token_ids for c in some] for name, some in ranks.items()} == tokens
    few = played(policy, worlds, rows(4), max_rows=3)
    assert {name: [c.token_ids for c in some] for name, some in few.items()} == tokens
    rest = played(policy, worlds, rows(4)[2:3], size=1, first=2)
    assert [c.token_ids for c in rest["row2"]] == tokens["row2"][2:]
    assert len({tuple(ids) for some in tokens.values() for ids in some}) == 12


def test_recorded_log_probs_are_those_of_one_pass_over_the_whole_episode(policy: Policy, worlds: Worlds) -> None:
    some = rows(2)
    engine = make_engine("graph", policy.model, policy.tokenizer, end_ids=policy.end_ids)
    made = Episodes.where_asked(SPEC, worlds, engine, policy)
    assert made is not None
    play = made.open(some, 2, 5)
    for prompt, completions in zip(play.prompts, play.generate(SETTINGS), strict=True):
        for completion in completions:
            plain = plain_logps(policy.model, prompt, completion.token_ids)
            for value, found, is_own in zip(plain, completion.logps, completion.mask, strict=True):
                assert found == pytest.approx(float(value) if is_own else 0.0, abs=1e-4)
            assert sum(completion.mask) == completion.sampled_tokens < len(completion.token_ids)
