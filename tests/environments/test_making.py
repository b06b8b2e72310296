"""Which classes and functions are environments, and in which words others are refused before the first episode."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.environments.worker import environment_factory_of
from grpo_verifiers.kinds.functions.conventions import BadFunction

SOURCE = """
class Plain:
    def reset(self, row, seed): ...
    def step(self, action): ...

class Fixed(Plain):
    @staticmethod
    def reset(row, seed): ...

class Gymnasium(Plain):
    def reset(self, *, seed=None, options=None): ...

class TwoActions(Plain):
    def step(self, action, more): ...

class Trl:
    def reset(self, **columns): ...
    def guess(self, n): ...

class KeepsScore(Plain):
    score = 0.0

class Scores(Plain):
    def score(self): ...
    def demonstrate(self): ...

def make(): return Scores()
def make_number(): return 7
made = Plain()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worlds_here.py").write_text(SOURCE)
    package = tmp_path / "games_here"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("HELLO = 'hello'\n")
    (package / "grid.py").write_text("from .names import HELLO\n" + SOURCE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("spec", "has"),
    [
        ("worlds_here.py:Fixed", False),
        ("worlds_here.py:Scores", True),
        ("worlds_here.py:make", True),
        ("games_here.grid:Scores", True),
    ],
)
def test_classes_and_what_functions_make_are_environments(spec: str, has: bool) -> None:
    made = environment_factory_of("python", [spec], {})
    assert (made.scores, made.demonstrates) == (has, has)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("worlds_here.py:make_number", "an int, which `worlds_here.py:make_number` made, has no method `reset`"),
        ("worlds_here.py:made", "`worlds_here.py:made` is a Plain, not a function or class"),
        ("worlds_here.py:Gymnasium", "cannot be called as `reset(row, seed)`: too many positional arguments"),
        ("worlds_here.py:TwoActions", "cannot be called as `step(action)`: missing a required argument: 'more'"),
        ("worlds_here.py:Trl", "has no method `step`: an environment has `reset(row, seed)` and `step(action)`"),
        ("worlds_here.py:Trl", "(a class made for TRL stands under `environment.trl`)"),
        ("worlds_here.py:KeepsScore", "is a float, and a method `score()` is meant by it: give it another name"),
        ("worlds_here.py:Lost", "has no `Lost`; it has Fixed, Gymnasium, KeepsScore, Plain, Scores"),
        ("games_here/grid.py:Plain", "name it as a module, `PACKAGE.MODULE:Plain`"),
    ],
)
def test_what_is_no_environment_is_refused_with_the_reason(spec: str, said: str) -> None:
    with pytest.raises(BadFunction) as err:
        environment_factory_of("python", [spec], {})
    assert said in str(err.value)
