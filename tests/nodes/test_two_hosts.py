"""Two machines with a network between them: network namespaces, each with an address of its own, joined by a cable.

The host's name means 127.0.0.1 in both, as on many machines, so gloo must be told where to listen.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.loop.recipes import ROOT, environment, small_recipe
from tests.loop.test_ranks import TWO
from tests.loop.test_resume import finish, train, what

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Host:
    """One machine: its number among the two, and the names of its namespace and its end of the cable."""

    rank: int
    space: str
    cable: str

    def ip(self, *command: str) -> str:
        done = subprocess.run(["ip", "-n", self.space, *command], check=True, capture_output=True, text=True)
        return done.stdout

    def start(self, recipe: Path, runs: Path, *more: str, **environ: str) -> subprocess.Popen[str]:
        """`grpo train` on this machine, as its user would type it on each."""
        sets = [f"run.dir={runs}", "run.name=run", "launch.nodes=2", "launch.rendezvous=10.77.0.1:29500"]
        flags = [part for one in [*sets, f"launch.node_rank={self.rank}"] for part in ("--set", one)]
        command = [sys.executable, "-m", "grpo_cli", "train", str(recipe), "--display", "plain", *flags, *more]
        return subprocess.Popen(
            ["ip", "netns", "exec", self.space, *command],
            cwd=ROOT,
            env=environment(runs) | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def power_off(self) -> None:
        """Kill everything that runs here."""
        pids = subprocess.run(["ip", "netns", "pids", self.space], check=True, capture_output=True, text=True)
        for pid in pids.stdout.split():
            os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2's `ip`")
    pair = [Host(rank, f"grpo-{os.getpid()}-{rank}", f"cable{rank}") for rank in (0, 1)]
    one, two = pair
    made = subprocess.run(["ip", "netns", "add", one.space], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        subprocess.run(["ip", "netns", "add", two.space], check=True)
        one.ip("link", "add", one.cable, "type", "veth", "peer", "name", two.cable, "netns", two.space)
        for host in pair:
            host.ip("addr", "add", f"10.77.0.{host.rank + 1}/24", "dev", host.cable)
            for link in ("lo", host.cable):
                host.ip("link", "set", link, "up")
        yield pair
    finally:
        for host in pair:
            subprocess.run(["ip", "netns", "del", host.space], check=False)


def wait_for(file: Path, processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + 240
    while not file.exists():
        assert all(one.poll() is None for one in processes), [one.communicate()[0] for one in processes]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(processes: list[subprocess.Popen[str]], *codes: int) -> list[str]:
    """What each said, once all have ended with these codes."""
    said = [one.communicate(timeout=90)[0] for one in processes]
    assert [one.returncode for one in processes] == list(codes), said
    return said


def test_a_machine_that_dies_is_named_and_the_run_resumes_exactly(hosts: list[Host], tmp_path: Path) -> None:
    recipe, runs = small_recipe(tmp_path, steps=4, save_every=2), tmp_path / "two"
    both = [host.start(recipe, runs) for host in hosts]
    wait_for(runs / "run/checkpoints/step-000002", both)
    hosts[1].power_off()
    said = ended(both, 4, -signal.SIGKILL)
    assert "rank 1 on machine 1 (" in said[0]
    assert "Traceback" not in said[0]
    resumed = ended([host.start(recipe, runs, "--resume") for host in hosts], 0, 0)
    assert "resuming run from step-000002" in resumed[0]
    assert resumed[1] == ""  # machine 0 talks
    finish(train(recipe, tmp_path / "one", *TWO))
    assert what(tmp_path / "one/run") == what(runs / "run")


@pytest.mark.parametrize("signalled", [0, 1])
def test_a_signal_to_either_machine_saves_and_ends_both(hosts: list[Host], tmp_path: Path, signalled: int) -> None:
    recipe, runs = small_recipe(tmp_path, steps=5000, save_every=100_000), tmp_path / "two"
    both = [host.start(recipe, runs) for host in hosts]
    wait_for(runs / "run/samples/step-000002.jsonl", both)
    both[signalled].send_signal(signal.SIGTERM)
    said = ended(both, 143, 143)
    assert "grpo train --resume" in said[0]
    assert len(list((runs / "run/checkpoints").glob("step-*"))) == 1


@pytest.mark.parametrize("unplugged", [0, 1])
def test_a_cable_that_is_pulled_ends_both_machines(hosts: list[Host], tmp_path: Path, unplugged: int) -> None:
    recipe, runs = small_recipe(tmp_path, steps=5000, save_every=100_000), tmp_path / "two"
    both = [host.start(recipe, runs, "--set", "stop.lost_s=8") for host in hosts]
    wait_for(runs / "run/samples/step-000002.jsonl", both)
    hosts[unplugged].ip("link", "set", hosts[unplugged].cable, "down")
    said = ended(both, 4, 4)
    assert "machine 1 (" in said[0]
    assert "rank 1) was not heard for" in said[0]
    assert "machine 0 was not heard for" in said[1]


def test_an_interface_that_leads_nowhere_is_named(hosts: list[Host], tmp_path: Path) -> None:
    recipe, runs = small_recipe(tmp_path), tmp_path / "two"
    limit = ("--set", "stop.lost_s=8")
    both = [host.start(recipe, runs, *limit, GLOO_SOCKET_IFNAME="lo") for host in hosts]
    said = "".join(ended(both, 4, 4))
    assert "cannot reach the others" in said
    assert "gloo listens at `lo`; set `GLOO_SOCKET_IFNAME`" in said
    assert not (runs / "run").exists()


def test_an_interface_that_is_not_there_is_refused(hosts: list[Host], tmp_path: Path) -> None:
    one = hosts[1].start(small_recipe(tmp_path), tmp_path / "two", GLOO_SOCKET_IFNAME="eth7")
    (said,) = ended([one], 4)
    assert "names `eth7`, which this machine does not have" in said
    assert "it has lo, cable1" in said


def test_a_rendezvous_out_of_reach_is_refused(hosts: list[Host], tmp_path: Path) -> None:
    recipe, runs = small_recipe(tmp_path), tmp_path / "two"
    (said,) = ended([hosts[1].start(recipe, runs, "--set", "launch.rendezvous=192.0.2.7:29500")], 4)
    assert "no way leads from this machine to `192.0.2.7` (Network is unreachable)" in said
    (said,) = ended([hosts[1].start(recipe, runs, "--set", "launch.rendezvous=nowhere.invalid:29500")], 4)
    assert "does not know the host `nowhere.invalid`" in said
