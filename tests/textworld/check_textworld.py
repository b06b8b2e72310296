"""Run by `make test-textworld` with the real package: games that its `tw-make` makes, played through worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from grpo_cli.environments.pool import Fault, Worlds
from grpo_cli.environments.step import Step


def made(folder: Path, seed: int) -> str:
    """A game of two rooms, four things and three commands to the end."""
    path = folder / f"{seed}.z8"
    sizes = ["--world-size", "2", "--nb-objects", "4", "--quest-length", "3"]
    tool = Path(sys.executable).parent / "tw-make"
    command = [sys.executable, str(tool), "custom", *sizes, "--seed", str(seed), "--output", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return str(path)


def way_of(game: str) -> list[str]:
    """The commands that `tw-make` wrote down as the way to the end."""
    known = json.loads(Path(game).with_suffix(".json").read_text())
    return [str(command) for command in known["metadata"]["walkthrough"]]


def opened(**options: object) -> Worlds:
    worlds = Worlds("environments:textworld", options, timeout_s=30, memory_mb=4096, workers=1)
    worlds.start()
    return worlds


def check_play(games: list[str]) -> None:
    worlds = opened()
    try:
        opening = worlds.open([({"game": games[0]}, 1), ({"game": games[0]}, 2), ({"game": games[1]}, 1)])
        (a, text), (b, _), (c, other) = opening
        assert isinstance(text, str) and isinstance(other, str) and text != other, opening
        assert "$$" not in text and "-=" in text, text  # no banner, the name of the room
        way = way_of(games[0])
        assert len(way) == 3, way
        # a: the way; b: nonsense, then something allowed that leads nowhere
        steps = list[Step | Fault]()
        for i, command in enumerate(way):
            one, two = worlds.step([(a, command), (b, "dance around" if i == 0 else "inventory")])
            assert isinstance(one, Step) and isinstance(two, Step), (one, two)
            steps += [one, two]
        walked, idle = steps[::2], steps[1::2]
        assert [getattr(s, "milestone", "") for s in walked] == ["2 left", "1 left", "0 left"], walked
        assert [getattr(s, "reward", -1) for s in walked] == [0.0, 0.0, 1.0], walked
        assert [getattr(s, "done", None) for s in walked] == [False, False, True], walked
        assert all(getattr(s, "valid", False) for s in walked), walked
        assert [getattr(s, "valid", None) for s in idle] == [False, True, True], idle
        assert len({getattr(s, "state", "") for s in idle}) == 1, idle
        assert len({getattr(s, "state", "") for s in walked}) == 3, walked
        assert all(">" not in getattr(s, "observation", ">") for s in steps), steps
        assert worlds.score([a, b]) == [1.0, 0.0]
        assert not isinstance(worlds.step([(c, "look")])[0], Fault)
    finally:
        worlds.close()


def check_hostile(folder: Path, games: list[str]) -> None:
    """What would make the interpreter write a file, end it, or end the game is answered without it."""
    worlds = opened()
    hostile = [
        "save",
        "look. save",
        "look then save",
        "\\r",
        "\x12",
        "\x0f\x10 ä\udc80\x1a",
        "quit",
        "restart",
        "script",
        "",
    ]
    before = set(folder.iterdir())
    try:
        ((a, _),) = worlds.open([({"game": games[0]}, 1)])
        for action in hostile:
            (step,) = worlds.step([(a, action)])
            assert isinstance(step, Step) and not step.valid and not step.done, (action, step)
            assert step.observation == "That cannot be done now.", step
        way = way_of(games[0])
        (step,) = worlds.step([(a, f"  {way[0].upper()}\n")])
        assert isinstance(step, Step) and step.valid and step.milestone == "2 left", step
        assert set(folder.iterdir()) == before
        assert worlds.printed == 0
    finally:
        worlds.close()


def check_demonstrations(games: list[str]) -> None:
    worlds = opened(commands=True)
    try:
        ((a, text),) = worlds.open([({"game": games[1]}, 1)])
        assert "You can: " in str(text), text
        for _ in range(3):
            (action,) = worlds.demonstrate([a])
            assert isinstance(action, str), action
            assert not isinstance(worlds.step([(a, action)])[0], Fault)
        assert worlds.score([a]) == [1.0]
    finally:
        worlds.close()


def check_row_without_game(folder: Path, games: list[str]) -> None:
    alone = folder / "alone.z8"
    alone.write_bytes(Path(games[0]).read_bytes())
    worlds = opened()
    try:
        for game in ("nowhere.z8", str(alone)):
            ((_, fault),) = worlds.open([({"game": game}, 1)])
            assert isinstance(fault, Fault) and "is not there: `tw-make` writes" in fault.text, fault
    finally:
        worlds.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        games = [made(folder, seed) for seed in (1, 2)]
        check_play(games)
        check_hostile(folder, games)
        check_demonstrations(games)
        check_row_without_game(folder, games)
    print("ok")


if __name__ == "__main__":
    main()
