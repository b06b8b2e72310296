"""The shipped worlds: what their rows hold, that they can be won, and what their milestones are."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest

from grpo_cli.data.tasks import task_rows
from grpo_cli.environments.pool import Worlds
from grpo_cli.environments.step import Step, read_step
from grpo_cli.environments.worlds.calculator import Calculator
from grpo_cli.environments.worlds.guess import Guess
from grpo_cli.environments.worlds.keydoor import Keydoor
from grpo_cli.errors import RecipeError


def act(world: Any, *actions: str) -> list[Step]:
    return [read_step(world.step(action), "step") for action in actions]


def made(name: str, split: Any, **options: int) -> list[dict[str, Any]]:
    return list(task_rows(name, split, options, "data.train"))


@pytest.mark.parametrize("name", ["keydoor", "guess", "calculator"])
def test_no_row_stands_in_both_splits_and_the_same_seed_makes_the_same_rows(name: str) -> None:
    train, test = made(name, "train", size=400), made(name, "test", test_size=100)
    assert (len(train), len(test)) == (400, 100)
    keys = [repr(row) for row in train + test]
    assert len(set(keys)) == len(keys)
    assert made(name, "train", size=400) == train
    assert made(name, "train", size=400, seed=8) != train


LAYOUT = {"grid": 4, "start": [0, 0], "key": [1, 0], "door": [1, 2]}


def test_the_door_opens_with_the_key_only() -> None:
    world = Keydoor()
    assert world.reset(LAYOUT, 1) == "k0x0y0"
    east, south, there = act(world, "e", "s", "s")
    assert (east.observation, east.milestone, east.reward) == ("k1x1y0", "key", 0.0)
    assert (south.milestone, south.done) == (None, False)
    assert (there.observation, there.reward, there.done) == ("k1x1y2", 1.0, True)
    world.reset(LAYOUT, 1)
    without = act(world, "s", "s", "e")
    assert without[-1].observation == "k0x1y2"
    assert not without[-1].done


def test_a_wall_holds_and_another_word_is_no_move() -> None:
    world = Keydoor()
    world.reset(LAYOUT, 1)
    wall, word = act(world, "n", "north")
    assert (wall.observation, wall.valid) == ("k0x0y0", True)
    assert (word.observation, word.valid) == ("k0x0y0", False)


def test_the_picture_shows_where_all_stand() -> None:
    world = Keydoor(picture=True)
    assert world.reset(LAYOUT, 1) == "@K..\n....\n.D..\n...."
    assert act(world, "e")[0].observation == ".@..\n....\n.D..\n....\nkey"


def test_no_observation_of_keydoor_has_more_than_eight_bytes() -> None:
    world = Keydoor()
    for row in made("keydoor", "train", size=50):
        assert len(world.reset(row, 1)) <= 8
        assert all(len(step.observation) <= 8 for step in act(world, *"nsewx"))


@pytest.mark.parametrize(("grid", "turns", "low", "high"), [(6, 48, 0.08, 0.22), (4, 24, 0.08, 0.3)])
def test_a_random_walk_gets_there_now_and_then(grid: int, turns: int, low: float, high: float) -> None:
    world, won = Keydoor(), 0
    random.seed(3)
    rows = made("keydoor", "train", size=400, grid=grid)
    for row in rows:
        world.reset(row, 1)
        won += any(act(world, world.demonstrate())[0].done for _ in range(turns))
    assert low < won / len(rows) < high


def test_shown_moves_lead_to_the_key_then_to_the_door_as_often_as_asked() -> None:
    rows = made("keydoor", "train", size=200, grid=4)
    for row in rows:
        world = Keydoor(toward=1.0)
        world.reset(row, 1)
        assert any(act(world, world.demonstrate())[0].done for _ in range(12))
    random.seed(5)
    won = {}
    for toward in (0.0, 0.4, 0.8):
        won[toward] = 0
        for row in rows:
            world = Keydoor(toward=toward)
            world.reset(row, 1)
            won[toward] += any(act(world, world.demonstrate())[0].done for _ in range(12))
    assert won[0.0] < won[0.4] < won[0.8]
    with pytest.raises(ValueError, match=r"`toward` is 1\.5"):
        Keydoor(toward=1.5)


def test_halving_finds_every_number_in_six_turns_and_each_halving_is_a_milestone() -> None:
    for row in made("guess", "test"):
        world = Guess()
        world.reset(row, 1)
        low, high, steps = row["low"], row["high"], []
        for _ in range(6):
            middle = (low + high) // 2
            steps += act(world, str(middle))
            low, high = (middle + 1, high) if steps[-1].observation == "higher" else (low, middle - 1)
            if steps[-1].done:
                break
        assert steps[-1].reward == 1.0
        names = [step.milestone for step in steps if step.milestone]
        assert len(set(names)) == len(names)


def test_a_guess_that_is_no_number_is_invalid() -> None:
    world = Guess()
    world.reset({"low": 1, "high": 32, "secret": 5}, 1)
    assert [step.valid for step in act(world, "five", "", "٣", "7")] == [False, False, False, True]


def test_a_sum_is_right_by_its_answer_and_each_partial_sum_is_a_milestone() -> None:
    world = Calculator()
    world.reset({"numbers": [12, 30, 5]}, 1)
    steps = act(world, "12+30", "42+5", "=47")
    assert [step.observation for step in steps] == ["42", "47", "right"]
    assert [step.milestone for step in steps] == ["sum of 2", "sum of 3", None]
    assert steps[-1].reward == 1.0
    world.reset({"numbers": [12, 30, 5]}, 1)
    assert act(world, "=42")[0] == Step("wrong", 0.0, True)
    world.reset({"numbers": [12, 30, 5]}, 1)
    assert [step.valid for step in act(world, "what", "1+2+3", "9999999+1")] == [False] * 3


def test_they_are_found_by_name_and_show_how_to_act() -> None:
    for name in ("keydoor", "guess", "calculator"):
        worlds = Worlds(f"environments:{name}", {}, workers=1)
        try:
            worlds.start()
            ((world, _),) = worlds.open([(made(name, "test")[0], 1)])
            (action,) = worlds.demonstrate([world])
            (step,) = worlds.step([(world, action)])
            assert isinstance(step, Step)
            assert step.valid
        finally:
            worlds.close()


@pytest.mark.skipif(importlib.util.find_spec("textworld") is not None, reason="TextWorld is installed")
def test_a_world_whose_package_is_missing_says_what_to_install() -> None:
    worlds = Worlds("environments:textworld", {}, workers=1)
    try:
        with pytest.raises(RecipeError, match="needs the package `textworld`: pip install textworld"):
            worlds.start()
    finally:
        worlds.close()
