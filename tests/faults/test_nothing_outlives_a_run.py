"""Workers, sandboxes and ranks end with the run that started them, however that one ends."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.warm import Warm, children, command
from tests.faults.runs import assert_nothing_lost, assert_same, lines_of, train
from tests.faults.table import tally
from tests.loop.recipes import small_recipe

SPIN = """\
def verify(completion, answer):
    if "0" in completion:
        while True:
            pass
    return False
"""
TWO = ("--set", "launch.cpu_ranks=2")
FIRST, TRIES = int(os.environ.get("FAULT_SEED", "0")), int(os.environ.get("FAULT_RANK_TRIES", "2"))


def descendants(pid: int) -> list[int]:
    """Every process below one."""
    found = children(pid)
    return found + [below for one in found for below in descendants(one)]


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_worker_or_sandbox_outlives_a_run_killed_while_it_judges(folder: Path, warm: Warm) -> None:
    recipe = small_recipe(folder)
    (folder / "judge.py").write_text(SPIN)
    rows = [{"question": f"{i}", "answer": "1", "tests": [{"input": "", "output": "1"}]} for i in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verifiers = 'python: {function: "judge:verify", timeout_s: 60, workers: 2}\n  code: {lanes: 1, weight: 0.1}'
    text = recipe.read_text().replace('regex: {pattern: "[02468].*[13579]"}', verifiers)
    text = text.replace("eval: {from: tasks:addition3, limit: 8, skip: 100}", "eval: rows.jsonl")
    recipe.write_text(text.replace("{from: tasks:addition3, limit: 20}", "rows.jsonl"))
    text = recipe.read_text()
    recipe.write_text(text[: text.index("warmup:")])
    pid, said = warm.start(train(recipe, folder), folder)

    def workers() -> int:
        return sum("grpo_verifiers.processes.worker" in command(one) for one in descendants(pid))

    wait_for(lambda: (busy_workers(pid) > 0 and workers() >= 2) or (not children(pid) and bool(said.read_text())))
    below = [command(one) for one in descendants(pid)]
    assert sum("grpo_verifiers.processes.worker" in one for one in below) >= 2, said.read_text()
    assert sum("inside" in one for one in below) >= 1, below
    os.kill(pid, signal.SIGKILL)
    assert warm.wait(pid) == -9  # asserts that nothing is left
    tally("processes left after `kill -9` of the run", "none")


def busy_workers(pid: int) -> int:
    """Workers below a process that have spun for a tenth of a second."""
    count = 0
    for one in descendants(pid):
        try:
            ticks = int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11])
        except OSError:
            continue
        count += ticks > 10 and "grpo_verifiers.processes.worker" in command(one) and not children(one)
    return count


def ranks(pid: int) -> list[int]:
    """The rank processes below a run, in the order of their ranks."""
    found = {}
    for one in descendants(pid):
        try:
            environ = dict(
                part.split("=", 1)
                for part in Path(f"/proc/{one}/environ").read_bytes().decode().split("\0")
                if "=" in part
            )
        except OSError:
            continue
        if "RANK" in environ and "-m grpo_cli" in command(one):
            found[int(environ["RANK"])] = one
    return [found[rank] for rank in sorted(found)]


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_which_then_resumes_exactly(folder: Path, warm: Warm) -> None:
    recipe = small_recipe(folder, steps=6, save_every=2)
    ended = warm.run(train(recipe, folder / "straight", *TWO), folder)
    assert ended.code == 0, ended.said
    for seed in range(FIRST, FIRST + TRIES):
        rng, runs = random.Random(f"rank/{seed}"), folder / f"broken{seed}"
        victim, step = rng.choice(["rank 0", "rank 1", "the parent"]), rng.randrange(1, 4)
        pid, said = warm.start(train(recipe, runs, *TWO), folder)
        wait_for(lambda runs=runs, step=step: (runs / f"run/samples/step-{step:06d}.jsonl").exists())  # type: ignore[misc]
        os.kill(pid if victim == "the parent" else ranks(pid)[int(victim[-1])], signal.SIGKILL)
        assert warm.wait(pid) != 0
        assert victim == "the parent" or "error" in said.read_text(), said.read_text()
        recorded = lines_of(runs / "run")
        ended = warm.run(train(recipe, runs, *TWO, "--resume"), folder)
        assert ended.code == 0, ended.said
        assert_nothing_lost(recorded, runs / "run")
        assert_same(folder / "straight/run", runs / "run")
        tally("`kill -9` of one of two ranks, or of their parent", victim)


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_the_run_goes_on_when_it_does(folder: Path, warm: Warm) -> None:
    recipe = small_recipe(folder, steps=40, save_every=50)
    pid, said = warm.start(train(recipe, folder, *TWO, "--set", "stop.hang_s=4"), folder)
    wait_for(lambda: (folder / "run/samples/step-000001.jsonl").exists())
    stopped = ranks(pid)[1]
    os.kill(stopped, signal.SIGSTOP)
    wait_for(lambda: "nothing has moved for" in said.read_text())
    assert "rank 1: does not run for" in said.read_text()
    os.kill(stopped, signal.SIGCONT)
    assert warm.wait(pid) == 0
    tally("a rank that is stopped", "named, the run went on")
