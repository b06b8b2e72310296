"""Environments in killable workers: what they say, what becomes of those that misbehave, and of their neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.step import LONGEST, Step
from grpo_cli.errors import RecipeError

HERE = str(Path(__file__).parent)


@pytest.fixture
def opened() -> Iterator[Any]:
    made: list[Worlds] = []

    def make(name: str, workers: int = 1, timeout_s: float = 0.3, **options: Any) -> Worlds:
        worlds = Worlds(f"bad_worlds.py:{name}", options, path=[HERE], timeout_s=timeout_s, workers=workers)
        made.append(worlds)
        worlds.start()
        return worlds

    yield make
    for worlds in made:
        worlds.close()


def start(worlds: Worlds, *starts: int) -> list[Any]:
    return [world for world, _ in worlds.open([({"start": n}, 5) for n in starts])]


def test_an_episode_keeps_its_world_between_turns(opened: Any) -> None:
    worlds = opened("Counter", workers=2)
    (a, first), (b, _), (c, _) = worlds.open([({"start": n}, 1) for n in (0, 1, 2)])
    assert first == "at 0"
    assert worlds.step([(a, "go"), (b, "go"), (c, "go")]) == [
        Step("at 1", 0.25, False, "1"),
        Step("at 2", 0.25, False, "2"),
        Step("at 3", 0.25, True, "3"),
    ]
    assert [step.observation for step in worlds.step([(b, "go"), (a, "go")])] == ["at 3", "at 2"]
    assert worlds.score([a, b, c]) == [2.0, 3.0, 3.0]


def test_options_are_what_the_class_is_made_with(opened: Any) -> None:
    worlds = opened("Counter", goal=1)
    (a,) = start(worlds, 0)
    assert worlds.step([(a, "go")])[0].done


def test_without_a_score_the_rewards_are_summed(opened: Any) -> None:
    worlds = opened("Plain")
    (a,) = start(worlds, 0)
    assert worlds.step([(a, "paid")]) == [Step("", 0.5)]
    worlds.step([(a, "paid")])
    assert worlds.score([a]) == [1.0]


def test_a_score_of_none_is_no_verdict(opened: Any) -> None:
    worlds = opened("Counter")
    (a,) = start(worlds, 77)
    assert worlds.score([a]) == [None]


def test_an_object_with_the_fields_is_a_step(opened: Any) -> None:
    worlds = opened("Shaped")
    ((a, said),) = worlds.open([({}, 9)])
    assert said == "9"
    assert worlds.step([(a, "x")]) == [Step("seen", 1.0, True)]


@pytest.mark.parametrize(
    ("action", "reason", "said"),
    [
        ("raise", "environment_raised", "`step` of `Counter` raised ZeroDivisionError: no way (bad_worlds.py:"),
        ("exit", "environment_raised", "`step` of `Counter` raised SystemExit"),
        ("hang", "timeout", "`step` of `Counter` took longer than `environment.timeout_s`"),
        ("die", "worker_died", "`step` of `Counter` ended its process"),
    ],
)
def test_a_fault_ends_one_episode_in_one_line_and_spares_the_others(
    opened: Any, action: str, reason: str, said: str
) -> None:
    worlds = opened("Counter", goal=9)
    a, b, c = start(worlds, 0, 1, 2)
    worlds.step([(a, "go"), (b, "go"), (c, "go")])
    before, fault, after = worlds.step([(a, "go"), (b, action), (c, "go")])
    assert isinstance(fault, Fault)
    assert fault.reason == reason and fault.provoked
    assert said in fault.text.replace(HERE + "/", "")
    assert "\n" not in fault.text
    assert [before.observation, after.observation] == ["at 2", "at 4"]
    assert [step.observation for step in worlds.step([(a, "go"), (c, "go")])] == ["at 3", "at 5"]
    assert worlds.score([a, c]) == [3.0, 5.0]


def test_a_worker_that_is_gone_once_costs_nothing(opened: Any, tmp_path: Path) -> None:
    worlds = opened("Counter", goal=9)
    a, b = start(worlds, 0, 1)
    worlds.step([(a, "go"), (b, "go")])
    again, other = worlds.step([(a, f"die once {tmp_path / 'gone'}"), (b, "go")])
    assert (again.observation, other.observation) == ("at 2", "at 3")
    assert worlds.score([a, b]) == [2.0, 3.0]


def test_a_world_that_waits_for_ever_is_ended_too(opened: Any) -> None:
    worlds = opened("Counter", timeout_s=0.05)
    (a,) = start(worlds, 0)
    (fault,) = worlds.step([(a, "sleep")])
    assert fault.reason == "timeout"


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("bytes", "returned a bytes: return a text, a dict or a `Step`"),
        ("bytes observation", "returned a bytes as the observation: return text"),
        ("long", f"returned 1,000,000 characters as the observation, at most {LONGEST:,} are taken"),
        ("number", "returned an int: return a text, a dict or a `Step`"),
        ("typo", "returned an unknown key `obsevation`; did you mean `observation`?"),
        ("nan", "returned nan as the reward: return a finite number"),
        ("text reward", "returned a str as the reward: return a finite number"),
        ("done", "returned an int as `done`: return true or false"),
        ("state", "returned a list as `state`: return what can be hashed"),
        ("milestone", "returned an int as `milestone`: return a name, or None"),
    ],
)
def test_a_return_without_meaning_is_no_verdict(opened: Any, action: str, said: str) -> None:
    worlds = opened("Plain")
    (a,) = start(worlds, 0)
    (fault,) = worlds.step([(a, action)])
    assert fault.reason == "bad_return"
    assert said in fault.text
    assert "`step` of `Plain` (" in fault.text


def test_episodes_of_a_row_do_not_share_what_one_of_them_changes(opened: Any) -> None:
    worlds = opened("Eats", lives=[1, 1])
    row = {"numbers": [1, 2, 3]}
    (a, _), (b, _) = worlds.open([(row, 1), (row, 1)])
    assert [step.observation for step in worlds.step([(a, "x"), (b, "x")])] == ["2 1", "2 1"]
    assert row == {"numbers": [1, 2, 3]}


def test_methods_may_be_coroutines(opened: Any) -> None:
    worlds = opened("Async")
    ((a, said),) = worlds.open([({}, 1)])
    assert said == "at 0"
    assert worlds.demonstrate([a]) == ["up"]
    assert worlds.step([(a, "x")]) == [Step("at 1", done=True)]
    assert worlds.score([a]) == [0.5]


def test_a_function_may_make_the_environment(opened: Any) -> None:
    worlds = opened("make_counter", goal=1)
    assert worlds.demonstrates
    (a,) = start(worlds, 0)
    assert worlds.step([(a, "go")])[0].done


def test_a_number_that_is_called_score_is_refused_before_the_first_turn(opened: Any) -> None:
    ((_, fault),) = opened("SetsScore").open([({}, 1)])
    assert "`score` of `SetsScore` is a float, and a method `score()` is meant by it" in fault.text


def test_text_without_tokens_is_replaced_and_none_is_no_observation(opened: Any) -> None:
    worlds = opened("Plain")
    (a,) = start(worlds, 0)
    assert worlds.step([(a, "bad text")]) == [Step("a?b")]
    assert worlds.step([(a, "none")]) == [Step("")]


def test_a_reset_that_raises_is_a_fault_of_its_row(opened: Any) -> None:
    worlds = opened("Plain")
    (_, fault), (_, said) = worlds.open([({"bad": True}, 1), ({}, 1)])
    assert isinstance(fault, Fault) and not fault.provoked
    assert "`reset` of `Plain` raised KeyError: 'layout'" in fault.text
    assert said == ""


def test_global_chance_depends_on_seed_and_turn_alone(opened: Any) -> None:
    alone, crowded = opened("Counter"), opened("Counter")
    (a,) = start(alone, 0)
    b, c = start(crowded, 0, 0)
    crowded.step([(c, "roll")])
    first, second = alone.step([(a, "roll")])[0], alone.step([(a, "roll")])[0]
    assert [crowded.step([(b, "roll")])[0], crowded.step([(b, "roll")])[0]] == [first, second]
    assert first.observation != second.observation


def test_a_world_that_does_not_repeat_has_no_verdict_when_it_had_to_be_made_anew(opened: Any) -> None:
    worlds = opened("Forgetful")
    a, b = start(worlds, 0, 0)
    worlds.step([(a, "x"), (b, "x")])
    died, other = worlds.step([(a, "die"), (b, "x")])
    assert isinstance(died, Fault)
    assert other.reason == "bad_return" and not other.provoked  # nobody knows whether its action was the cause
    assert "does not repeat" in other.text


def test_prints_are_counted(opened: Any) -> None:
    worlds = opened("Counter")
    (a,) = start(worlds, 0)
    worlds.step([(a, "print")])
    worlds.step([(a, "print")])
    worlds.close()
    assert worlds.printed == 2


def test_demonstrations_come_from_where_the_world_is(opened: Any) -> None:
    worlds = opened("Counter")
    assert worlds.demonstrates
    a, b = start(worlds, 0, 1)
    assert worlds.demonstrate([a, b]) == ["go", "up"]
    assert not opened("Plain").demonstrates


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("Nothing", {}, "has no `Nothing`"),
        ("NoStep", {}, "has no method `step`: an environment has `reset(row, seed)` and `step(action)`"),
        ("Broken", {}, "cannot be made with the options []: missing a required argument: 'needed'"),
        ("Counter", {"gaol": 2}, "cannot be made with the options ['gaol']: got an unexpected keyword argument"),
    ],
)
def test_a_class_that_cannot_be_an_environment_is_refused_before_the_first_episode(
    opened: Any, name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(RecipeError) as err:
        opened(name, **options)
    assert said in str(err.value)
