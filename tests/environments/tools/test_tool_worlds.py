"""Tools in killable workers: functions, classes of TRL's contract, and code in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.step import Step
from grpo_cli.environments.tools.calls import ToolCall, as_action
from grpo_cli.errors import RecipeError
from grpo_verifiers.sandbox import tiers

HERE = str(Path(__file__).parent)


@pytest.fixture
def opened() -> Iterator[Any]:
    made: list[Worlds] = []

    def make(kind: Any, *names: str, **options: Any) -> Worlds:
        specs = [name if name == "python" else f"my_tools.py:{name}" for name in names]
        worlds = Worlds(specs, options, kind=kind, path=[HERE], timeout_s=5, workers=1)
        made.append(worlds)
        worlds.start()
        return worlds

    yield make
    for worlds in made:
        worlds.close()


def act(worlds: Worlds, world: Any, *calls: ToolCall) -> Any:
    return worlds.step([(world, as_action(calls))])[0]


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def test_calls_are_answered_one_by_one_and_a_turn_without_one_is_the_end(opened: Any) -> None:
    worlds = opened("tools", "add", "slow", "divide")
    ((world, said),) = worlds.open([({"question": "2+3"}, 1)])
    assert said == ""
    assert [tool["function"]["name"] for tool in worlds.tools] == ["add", "slow", "divide"]
    assert not worlds.scores
    step = act(worlds, world, call("add", a=2, b=3), call("slow", word="ja"))
    assert step == Step("5\nJA", parts=("5", "JA"))
    assert act(worlds, world) == Step(done=True)
    assert worlds.score([world]) == [None]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call("ad", a=1), "error: there is no tool `ad`; did you mean `add`?"),
        (call("add"), "error: `add` needs the argument `a`"),
        (call("add", a="x"), 'error: `a` must be an integer, not "x"'),
        (call("divide", a=1, b=0), "error: ZeroDivisionError: division by zero"),
        (ToolCall("", error="the call is no JSON"), "error: the call is no JSON"),
    ],
)
def test_a_bad_call_is_answered_with_why_and_is_no_valid_action(opened: Any, made: ToolCall, said: str) -> None:
    worlds = opened("tools", "add", "divide")
    ((world, _),) = worlds.open([({}, 1)])
    step = act(worlds, world, made, call("add", a=1))
    assert (step.parts[1], step.valid, step.done) == ("2", False, False)
    assert said in step.parts[0]


def test_a_class_of_trl_keeps_its_state_and_gives_its_reward(opened: Any) -> None:
    worlds = opened("trl", "Counter")
    assert worlds.scores
    assert [tool["function"]["name"] for tool in worlds.tools] == ["look", "raise_by"]
    (a, said), (b, _) = worlds.open([({"goal": 3, "prompt": "x"}, 1), ({"goal": 1}, 1)])
    assert said == " goal 3"
    assert act(worlds, a, call("raise_by", n=2)).observation == "at 2"
    assert act(worlds, b, call("raise_by", n=2)).observation == "at 2"
    assert act(worlds, a, call("raise_by", n=1), call("look")).parts == ("at 3", "3")
    assert not act(worlds, a, call("get_reward")).valid
    assert worlds.score([a, b]) == [1.0, 0.0]


def test_a_class_of_trl_without_what_it_needs_is_told(opened: Any) -> None:
    assert not opened("trl", "NoReward").scores
    with pytest.raises(RecipeError, match=r"`my_tools.py:NoTools` has no public method beside reset, get_reward"):
        opened("trl", "NoTools")
    with pytest.raises(RecipeError, match="has no method `reset`"):
        opened("trl", "Resetless")
    with pytest.raises(RecipeError, match="cannot be made with the options"):
        opened("trl", "Counter", size=3)


def test_a_tool_without_types_is_told_before_a_run(opened: Any) -> None:
    with pytest.raises(RecipeError, match=r"`a` of the tool `untyped` .* has no type"):
        opened("tools", "untyped")
    with pytest.raises(RecipeError, match="two tools are called `add`"):
        opened("tools", "add", "add")
    with pytest.raises(RecipeError, match="functions are called as they are"):
        opened("tools", "add", size=3)


def test_a_tool_that_hangs_costs_its_episode_the_verdict_only() -> None:
    worlds = Worlds(["my_tools.py:add", "my_tools.py:spin"], {}, kind="tools", path=[HERE], timeout_s=0.2, workers=1)
    try:
        worlds.start()
        (a, _), (b, _) = worlds.open([({}, 1), ({}, 2)])
        act(worlds, b, call("add", a=1))
        fault = act(worlds, a, call("spin", n=1))
        assert isinstance(fault, Fault)
        assert fault.reason == "timeout"
        assert act(worlds, b, call("add", a=2)).parts == ("3",)
    finally:
        worlds.close()


def test_an_environment_of_a_package_that_is_not_there_is_told() -> None:
    worlds = Worlds("no-such-environment", {}, kind="verifiers", workers=1)
    try:
        with pytest.raises(RecipeError, match="needs the package `verifiers`, which is not installed") as told:
            worlds.start()
        assert "`environment.verifiers`" in told.value.mistakes[0].place
    finally:
        worlds.close()


needs_sandbox = pytest.mark.skipif(
    all(isinstance(tiers.try_tier(name), str) for name in ("namespaces", "landlock")), reason="no sandbox here"
)


@needs_sandbox
def test_code_of_the_model_runs_in_the_sandbox(opened: Any) -> None:
    worlds = opened("tools", "python")
    ((world, _),) = worlds.open([({}, 1)])

    def run(code: str) -> str:
        return str(act(worlds, world, call("python", code=code)).observation)

    assert run("print(6 * 7)") == "42"
    assert run("x = 1") == "(it printed nothing)"
    assert "NameError: name 'x' is not defined" in run("print(x)")
    assert "SyntaxError" in run("print(") or "no Python code" in run("print(")
    assert run("while True: pass") == "error: it took too long and was ended"
    assert "error" in run("open('/etc/passwd').read()").lower()
    assert "error" in run("import socket; socket.create_connection(('1.1.1.1', 80), 1)").lower()
    long = run("print('x' * 10_000)")
    assert len(long) < 4_100
    assert "characters left out" in long
    assert run("print(6 * 7)") == "42"
