"""Environments of OpenEnv, of a class and of a server: what a turn becomes, what it is paid, and what is no verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.step import Step
from grpo_cli.errors import RecipeError
from tests.environments.open_env import Server

ROW = {"number": 7, "other": "x"}


def opened(spec: str, **options: Any) -> Worlds:
    worlds = Worlds(spec, options, kind="openenv", workers=1)
    worlds.start()
    return worlds


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_a_class_takes_the_columns_it_names_and_json_where_an_action_has_several_fields() -> None:
    worlds = opened("tests.environments.open_env:Plane")
    try:
        assert worlds.scores and not worlds.demonstrates
        (one, first), (other, _) = worlds.open([(ROW, 5), (ROW, 5)])
        assert str(first).startswith("7/5\nAnswer with a JSON object") and "metadata" not in str(first)
        steps = worlds.step([(one, '{"x": 1, "y": 2}'), (other, "hello")])
        assert steps[0] == Step("moved", 3.0)
        assert steps[1] == Step("error: an action is a JSON object", valid=False)
        (last,) = worlds.step([(one, '{"x": 9, "y": 0}')])
        assert isinstance(last, Step) and last.done
        assert worlds.score([one, other]) == [12.0, None]
    finally:
        worlds.close()


def test_an_episode_whose_rewards_are_all_none_has_no_verdict() -> None:
    worlds = opened("tests.environments.open_env:Plane", pays=False)
    try:
        ((world, _),) = worlds.open([(ROW, 5)])
        worlds.step([(world, '{"x": 9, "y": 2}')])
        assert worlds.score([world]) == [None]
    finally:
        worlds.close()


def test_a_server_plays_as_a_class_does(server: Server) -> None:
    worlds = opened(server.url)
    try:
        assert worlds.demonstrates
        (one, first), (other, _) = worlds.open([(ROW, 5), (ROW, 6)])
        assert first == "seed 5"
        assert set(worlds.demonstrate([one, other])) <= {"UP", "DOWN"}
        steps = worlds.step([(one, "UP"), (other, "nix")])
        assert steps[0] == Step("n 1", 0.5)
        assert steps[1] == Step("error: `move`: Input should be 'UP' or 'DOWN'", valid=False)
        assert worlds.step([(one, "DOWN")]) == [Step("n 2", 0.5, done=True)]
        assert worlds.score([one, other]) == [1.0, None]
    finally:
        worlds.close()


@pytest.mark.parametrize("how", ["crash", "gone"])
def test_a_server_that_fails_is_no_verdict_and_no_action_is_to_blame(server: Server, how: str) -> None:
    worlds = opened(server.url)
    try:
        ((world, _),) = worlds.open([(ROW, 5)])
        if how == "gone":
            server.close()
        (found,) = worlds.step([(world, "CRASH" if how == "crash" else "UP")])
        assert isinstance(found, Fault) and found.reason == "tool_server" and not found.provoked
    finally:
        worlds.close()


def test_a_message_of_more_than_64_kib_is_read_whole(server: Server) -> None:
    worlds = opened(server.url)
    try:
        ((world, _),) = worlds.open([(ROW, 5)])
        (found,) = worlds.step([(world, "LONG")])
        assert isinstance(found, Fault) and "65,536" in found.text  # the limit of an observation, not of the client
    finally:
        worlds.close()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("http://127.0.0.1:9", "does not answer"),
        ("ftp://x", "is no address"),
        ("tests.environments.open_env:ToolsAlone", "plays by tools"),
        ("tests.environments.open_env:NotOne", "is no environment of OpenEnv"),
    ],
)
def test_what_is_none_is_refused_with_the_reason(spec: str, why: str) -> None:
    with pytest.raises(RecipeError, match=why):
        opened(spec)
