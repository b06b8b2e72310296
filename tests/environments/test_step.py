"""What a return value of `step` is read as, and what is refused in which words."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grpo_cli.environments.step import Step, method_of, read_step
from grpo_verifiers.kinds.functions.value import BadReturn

Result = namedtuple("Result", "observation reward done info")


@dataclass
class Lacking:
    observation: str
    done: bool


@dataclass
class Misspelt:
    observation: str
    reward: float
    done: bool
    milestne: str = "key"


@pytest.mark.parametrize(
    ("reward", "read"),
    [
        (Fraction(1, 2), 0.5),
        (Decimal("0.5"), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.array([0.5]), 0.5),
        (True, 1.0),
        (-7.5, -7.5),
    ],
)
def test_any_finite_number_is_a_reward(reward: object, read: float) -> None:
    assert read_step({"reward": reward}, "`step`").reward == read


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (("a", 1.0, True, False, {}), "a tuple: return a dict, `{'observation': …, 'reward': …, 'done': …}`"),
        ({"observation": "a", "terminated": True}, "an unknown key `terminated`; known: observation, reward"),
        ({"observation": ["a", {"type": "image"}]}, "a dict as an observation: return text"),
        ((letter for letter in "abc"), "a generator: return a text, a dict or a `Step`"),
        (object(), "an object: return a text, a dict or a `Step`"),
        ({"reward": 10**400}, "inf as the reward: return a finite number"),
        ({"reward": 1j}, "a complex as the reward: return a finite number"),
        ({"reward": None}, "a NoneType as the reward: return a finite number"),
        ({"reward": np.array([0.5, 1.0])}, "a ndarray as the reward: return a finite number"),
        (Lacking("a", True), "a Lacking without `reward`: return a text, a dict or a `Step`"),
        (Misspelt("a", 1.0, True), "a Misspelt with `milestne`; did you mean `milestone`?"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_mend(value: object, said: str) -> None:
    with pytest.raises(BadReturn) as err:
        read_step(value, "`step`")
    assert f"`step` returned {said}" in str(err.value)


@pytest.mark.parametrize(
    ("value", "step"),
    [
        ("日本語 🎉 привет", Step("日本語 🎉 привет")),
        (Result("a", 1.0, True, {}), Step("a", 1.0, True)),
        (Step("a", 1.0, True, "s", "key", False), Step("a", 1.0, True, "s", "key", False)),
        ({"observation": "", "done": np.bool_(True)}, Step(done=True)),
    ],
)
def test_texts_dicts_and_objects_are_steps(value: object, step: Step) -> None:
    assert read_step(value, "`step`") == step


def test_a_method_that_may_be_left_out_is_a_method_where_it_is_there() -> None:
    class World:
        score: Any = None
        demonstrate = 7

    assert method_of(World, "score", "World") is None
    with pytest.raises(BadReturn, match="`demonstrate` of `World` is an int"):
        method_of(World, "demonstrate", "World")


def test_states_that_are_equal_are_one_text() -> None:
    def state(value: object) -> str | None:
        return read_step({"state": value}, "`step`").state

    assert state((1, "a", (2,))) == repr((1, "a", (2,)))
    assert state((np.int64(1), np.str_("a"))) == state((1, "a"))
    names = [f"item {i}" for i in range(20)]
    assert state(frozenset(names)) == state(frozenset(reversed(names)))
    assert state(np.int64(3)) == state(3) == "3"
    with pytest.raises(BadReturn, match="returned an object as `state`, which shows itself by its place in memory"):
        state(object())
