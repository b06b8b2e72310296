"""Two machines played by two launches on this one: the same run as two processes of one machine."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from tests.loop.recipes import small_recipe
from tests.loop.test_ranks import TWO
from tests.loop.test_resume import finish, train, what


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.slow
def test_two_machines_train_as_two_processes_of_one(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=4, save_every=2)
    finish(train(recipe, tmp_path / "one", *TWO))
    first, second = both(recipe, tmp_path / "two")
    assert "step 4/4" in first
    assert second == ""  # machine 0 talks
    assert what(tmp_path / "one/run") == what(tmp_path / "two/run")


def both(recipe: Path, runs: Path) -> list[str]:
    """What each machine said."""
    place = ("--set", "launch.nodes=2", "--set", f"launch.rendezvous=127.0.0.1:{free_port()}")
    name = ("--set", "run.name=run")
    machines = [train(recipe, runs, *place, *name, "--set", f"launch.node_rank={rank}") for rank in (1, 0)]
    return [finish(machine) for machine in reversed(machines)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_machine_waits_for_the_others_ends_it_at_once(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    place = ("--set", "launch.nodes=2", "--set", f"launch.rendezvous=127.0.0.1:{free_port()}")
    machine = train(small_recipe(tmp_path), tmp_path / "runs", *place, "--set", "launch.node_rank=1")
    children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children")
    until = time.monotonic() + 60
    while not (torchrun := children.read_text().split()) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    machine.send_signal(number)
    said, _ = machine.communicate(timeout=30)
    assert machine.returncode == code, said
    assert said.strip() == "interrupted before any process had started"
    assert not Path(f"/proc/{torchrun[0]}").exists()
