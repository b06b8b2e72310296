"""Faults at random: whatever strikes, what was recorded is still there and the resumed run equals the unbroken one.

`FAULT_TRIES` tries of each (1; `make test-faults` takes many), numbered from `FAULT_SEED`. After every run of this
folder no process of it is left, which `Warm.wait` sees to.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.warm import Ended, Warm
from tests.faults.runs import assert_nothing_lost, assert_same, lines_of, train
from tests.faults.table import tally
from tests.loop.recipes import small_recipe

FIRST, TRIES = int(os.environ.get("FAULT_SEED", "0")), int(os.environ.get("FAULT_TRIES", "1"))
tried = pytest.mark.parametrize("seed", range(FIRST, FIRST + TRIES))

JUDGE = """\
def verify(completion, answer):
    return sum(map(str.isdigit, completion)) % 2 == 0
"""
BAD_JUDGE = """\
import os, zlib

def verify(completion, answer):
    fate = zlib.crc32(completion.encode()) % 24
    if fate == 0:
        while True:
            pass
    if fate == 1:
        return len([bytes(1 << 20) for _ in range(4096)]) > 0
    if fate == 2:
        os._exit(3)
    return fate % 2 == 0
"""


@dataclass(frozen=True)
class Whole:
    """An unbroken run: its recipe, its folder, how many changes it made to its files."""

    recipe: Path
    run: Path
    changes: int


@pytest.fixture(scope="module")
def whole(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return unbroken(warm, tmp_path_factory.mktemp("whole"), JUDGE)


def unbroken(warm: Warm, folder: Path, judge: str, options: str = "") -> Whole:
    recipe = small_recipe(folder, steps=6, save_every=2)
    verifier = f'python: {{function: "judge:verify", workers: 1{options}}}'
    recipe.write_text(recipe.read_text().replace('regex: {pattern: "[02468].*[13579]"}', verifier))
    # two updates a batch: a death may fall between them
    recipe.write_text(recipe.read_text().replace("seed: 3}", "seed: 3, inner_epochs: 2}"))
    (folder / "judge.py").write_text(judge)
    count = {"folder": str(folder), "at": -1, "how": "", "log": str(folder.with_suffix(".log"))}
    ended = warm.run(train(recipe, folder), folder, strike=count)
    assert ended.code == 0, ended.said
    changes = len(folder.with_suffix(".log").read_text().splitlines())
    return Whole(recipe, folder / "run", changes)


def resume(warm: Warm, whole: Whole, runs: Path, **more: object) -> Ended:
    """Go on with the run, or start it where it had not come to be."""
    # by its path, and anyway: a copy of a run lies in another folder than its recipe says
    is_there = (runs / "run/run.json").exists()
    flags = ["--resume", str(runs / "run"), "--resume-anyway"] if is_there else []
    return warm.run(train(whole.recipe, runs, *flags), runs, **more)  # type: ignore[arg-type]


def finish_and_compare(warm: Warm, whole: Whole, runs: Path) -> str:
    """Resume to the end; everything recorded is there and all is as in the unbroken run. Tells where it went on."""
    recorded = lines_of(runs / "run")
    ended = resume(warm, whole, runs)
    assert ended.code == 0, ended.said
    assert_nothing_lost(recorded, runs / "run")
    assert_same(whole.run, runs / "run")
    places = [line.split(" from ")[1].split(";")[0] for line in ended.said.splitlines() if "resuming run from" in line]
    return f"from {places[0]}" if places else "from the start"


@tried
def test_death_before_or_within_any_change_to_its_files(folder: Path, warm: Warm, whole: Whole, seed: int) -> None:
    rng = random.Random(f"change/{seed}")
    for _ in range(rng.choice([1, 1, 2, 3])):
        recorded = lines_of(folder / "run")
        at, how = rng.randrange(1, whole.changes + 1), rng.choice(["kill", "kill", "half"])
        ended = resume(warm, whole, folder, strike={"folder": str(folder), "at": at, "how": how})
        assert ended.code in (-9, 0), ended.said
        assert_nothing_lost(recorded, folder / "run")
    tally("`kill -9` before or within a change to a file of the run", finish_and_compare(warm, whole, folder))


@tried
def test_death_at_any_time(folder: Path, warm: Warm, whole: Whole, seed: int) -> None:
    rng = random.Random(f"time/{seed}")
    for _ in range(rng.choice([1, 2, 3])):
        recorded = lines_of(folder / "run")
        ended = resume(warm, whole, folder, kill_when=a_while_after(folder / "run", rng))
        assert ended.code in (-9, 0), ended.said
        assert_nothing_lost(recorded, folder / "run")
    tally("`kill -9` at a random time", finish_and_compare(warm, whole, folder))


def a_while_after(run: Path, rng: random.Random) -> Callable[[], bool]:
    """A moment up to a third of a second after a random number of metric lines, however loaded the machine is."""
    lines, delay, seen = rng.randrange(0, 10), rng.uniform(0, 0.3), list[float]()

    def is_now() -> bool:
        file = run / "metrics.jsonl"
        if not seen and (not lines or (file.exists() and file.read_bytes().count(b"\n") >= lines)):
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] >= delay

    return is_now


@tried
def test_a_signal_at_any_time_saves(folder: Path, warm: Warm, whole: Whole, seed: int) -> None:
    rng = random.Random(f"signal/{seed}")
    how, code = rng.choice([("term", 143), ("int", 130)])
    at = rng.randrange(1, whole.changes + 1)
    ended = warm.run(train(whole.recipe, folder), folder, strike={"folder": str(folder), "at": at, "how": how})
    assert ended.code in (code, 0), ended.said
    assert "Traceback" not in ended.said
    if "finishing this step" in ended.said and ended.code:
        assert "saved" in ended.said
    tally("Ctrl-C or SIGTERM at a random time", finish_and_compare(warm, whole, folder))


@tried
def test_a_disk_that_fills_up(folder: Path, warm: Warm, whole: Whole, seed: int) -> None:
    rng = random.Random(f"disk/{seed}")
    with small_disk(folder) as (disk, is_real):
        if is_real:
            strike = {"folder": str(disk), "at": rng.randrange(1, whole.changes + 1), "how": "fill"}
            ended = warm.run(train(whole.recipe, disk), disk, strike=strike)
        else:
            ended = warm.run(train(whole.recipe, disk), disk, file_bytes=rng.randrange(1 << 10, 1 << 22))
        assert ended.code in (4, 0), ended.said
        assert "Traceback" not in ended.said, ended.said
        assert ended.code == 0 or "error: " in ended.said, ended.said
        (disk / "filler").unlink(missing_ok=True)
        what = "a disk that is full from a random moment on" if is_real else "files that may not grow past a size"
        tally(what, finish_and_compare(warm, whole, disk))


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A tmpfs of 32 MiB, or the plain folder and False where this user may not mount one."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(disk)]
    is_real = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield disk, is_real
    finally:
        if is_real:
            subprocess.run(["umount", "-l", str(disk)], check=True)


@tried
def test_damaged_checkpoints(folder: Path, warm: Warm, whole: Whole, seed: int) -> None:
    rng = random.Random(f"damage/{seed}")
    shutil.copytree(whole.run, folder / "run")
    newest_first = sorted((folder / "run/checkpoints").glob("step-*"), reverse=True)
    for checkpoint in newest_first[: rng.choice([1, 1, 2, 3])]:
        damage(rng, checkpoint)
    tally("checkpoint files cut, changed or deleted", finish_and_compare(warm, whole, folder))


def damage(rng: random.Random, checkpoint: Path) -> None:
    file = rng.choice(sorted(checkpoint.iterdir()))
    size = file.stat().st_size
    kind = rng.choice(["cut", "delete", "flip", "empty", "folder"])
    if kind == "cut":
        os.truncate(file, rng.randrange(size))
    elif kind == "flip":
        data = bytearray(file.read_bytes())
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    elif kind == "empty":
        for one in checkpoint.iterdir():
            one.unlink()
    elif kind == "folder":
        shutil.rmtree(checkpoint)
    else:
        file.unlink()


@tried
def test_verifier_workers_that_are_killed_change_nothing(folder: Path, warm: Warm, whole: Whole, seed: int) -> None:
    at = random.Random(f"workers/{seed}").randrange(1, whole.changes + 1)
    strike = {"folder": str(folder), "at": at, "how": "workers"}
    ended = warm.run(train(whole.recipe, folder), folder, strike=strike)
    assert ended.code == 0, ended.said
    assert_same(whole.run, folder / "run")
    tally("verifier processes killed at a random time", "the run went on")


@pytest.fixture(scope="module")
def bad(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return unbroken(warm, tmp_path_factory.mktemp("bad"), BAD_JUDGE, ", timeout_s: 0.1, memory_mb: 64")


@tried
def test_a_verifier_that_hangs_eats_memory_and_dies(folder: Path, warm: Warm, bad: Whole, seed: int) -> None:
    samples = "".join(file.read_text() for file in bad.run.glob("samples/*.jsonl"))
    assert all(f'"{reason}"' in samples for reason in ("timeout", "memory", "verifier_raised"))
    at = random.Random(f"bad/{seed}").randrange(1, bad.changes + 1)
    ended = warm.run(train(bad.recipe, folder), folder, strike={"folder": str(folder), "at": at, "how": "kill"})
    assert ended.code in (-9, 0), ended.said
    tally("a verifier that hangs, eats memory and dies, and `kill -9`", finish_and_compare(warm, bad, folder))
