"""Turns of episodes through vLLM in this process: a seed and a limit for each, and the weights of now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from grpo_cli.environments.pool import Worlds
from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.rollout.episodes.play import Episodes
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.make import make_engine
from grpo_cli.rollout.vllm.engine import VllmEngine
from grpo_cli.rollout.vllm.offline import OfflineVllm
from tests.builders.vllm_stand_in import Held, StandIn, install
from tests.rollout.episodes.test_same_episodes import SETTINGS, SPEC, rows


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0)


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    made = Worlds("environments:keydoor", {}, workers=1)
    made.start()
    yield made
    made.close()


def graph(policy: Policy) -> GraphEngine:
    made = make_engine("graph", policy.model, policy.tokenizer, end_ids=policy.end_ids)
    assert isinstance(made, GraphEngine)
    return made


def test_each_turn_has_a_seed_and_a_limit_of_its_own_and_weights_are_sent_once_a_step(
    policy: Policy, worlds: Worlds
) -> None:
    engine, held = VllmEngine.of(policy), Held(StandIn(graph(policy)))
    trainer = SimpleNamespace(vllm_generation=held, state=SimpleNamespace(global_step=0), _last_loaded_step=-1)
    engine.attach(trainer)
    episodes = Episodes.where_asked(SPEC, worlds, engine, policy)
    assert episodes is not None
    both = episodes.open(rows(2), 3, 5).generate(SETTINGS)
    assert held.syncs == 1
    assert len({one.seed for one in held.llm.asked}) == len(held.llm.asked)
    assert all(0 <= one.seed < 2**63 and one.max_tokens <= SPEC.turn_tokens for one in held.llm.asked)
    alone = episodes.open(rows(2)[1:], 3, 5).generate(SETTINGS)
    assert [c.token_ids for c in both[1]] == [c.token_ids for c in alone[0]]
    assert held.syncs == 1
    trainer.state.global_step = 1
    tight = episodes.open(rows(1), 2, 5).generate(replace(SETTINGS, max_tokens=26))
    assert held.syncs == 2
    assert all(len(c.token_ids) <= 26 for c in tight[0])
    assert any(one.max_tokens < SPEC.turn_tokens for one in held.llm.asked)


def test_a_job_that_measures_plays_the_same_episodes(policy: Policy, worlds: Worlds) -> None:
    held = Held(StandIn(graph(policy)))
    trained = VllmEngine.of(policy)
    trained.attach(SimpleNamespace(vllm_generation=held, state=SimpleNamespace(global_step=0), _last_loaded_step=0))
    measured = OfflineVllm(held.llm, policy.end_ids, policy.context, policy.vocabulary)  # type: ignore[arg-type]
    found = []
    for engine in (trained, measured):
        episodes = Episodes.where_asked(SPEC, worlds, engine, policy)
        assert episodes is not None
        found.append(episodes.open(rows(2), 2, 5).generate(replace(SETTINGS, max_tokens=26)))
    assert held.syncs == 0
    assert [[c.token_ids for c in one] for one in found[0]] == [[c.token_ids for c in one] for one in found[1]]
