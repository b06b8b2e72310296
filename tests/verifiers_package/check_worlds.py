"""Run by `make test-verifiers` beside `check_environments`: environments of the real package as worlds of episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo_cli.environments.pool import Fault, Worlds

HERE = str(Path(__file__).parent)
PROMPT = [{"role": "system", "content": "Guess."}, {"role": "user", "content": "a number up to 9"}]
ROW = {"prompt": PROMPT, "answer": "7", "example_id": 0}


def opened(spec: str, **options: Any) -> Worlds:
    worlds = Worlds(spec, options, kind="verifiers", path=[HERE], timeout_s=20, memory_mb=4096, workers=1)
    worlds.start()
    return worlds


def check_turns() -> None:
    worlds = opened("my_game")
    try:
        (a, said), (b, _), (c, _), (d, _) = worlds.open([(ROW, 1)] * 4)
        assert said == ""
        first = worlds.step([(a, "3"), (b, "9"), (c, "crash"), (d, "bug")])
        assert [getattr(step, "observation", step) for step in first[:2]] == ["higher", "lower"], first
        assert first[2].done, first
        assert isinstance(first[3], Fault), first
        assert "ZeroDivisionError: a bug" in first[3].text, first
        steps = worlds.step([(a, "7"), (b, "8")])
        assert [step.done for step in steps] == [True, False], steps
        # a: found at the second try; b: ended by us, after two; c: the package's own error is no verdict
        scores = worlds.score([a, b, c])
        assert scores[:2] == [1.0 + 0.5 / 2, 0.5 / 2], scores
        assert isinstance(scores[2], Fault), scores
        assert "no such move" in scores[2].text, scores
    finally:
        worlds.close()


def check_limits() -> None:
    worlds = opened("my_game:load_environment", turns=2)
    try:
        ((a, _),) = worlds.open([(ROW, 1)])
        assert not worlds.step([(a, "1")])[0].done
        assert worlds.step([(a, "2")])[0].done
    finally:
        worlds.close()
    worlds = opened("my_game:load_environment", breaks=True)
    try:
        ((a, _),) = worlds.open([(ROW, 1)])
        worlds.step([(a, "7")])
        (fault,) = worlds.score([a])
        assert isinstance(fault, Fault), fault
        assert "ZeroDivisionError" in fault.text, fault
    finally:
        worlds.close()


def check_one_turn() -> None:
    worlds = opened("my_game:single")
    try:
        row = {"question": "a number up to 9", "answer": "7"}
        (a, said), (b, _) = worlds.open([(row, 1), (row, 2)])
        assert said == ""
        assert [step.done for step in worlds.step([(a, "7"), (b, "8")])] == [True, True]
        assert worlds.score([a, b]) == [1.0, 0.0]
    finally:
        worlds.close()


def main() -> None:
    check_turns()
    check_limits()
    check_one_turn()
    print("ok")


if __name__ == "__main__":
    main()
