import threading
import time
from pathlib import Path
from typing import Any

from grpo_cli.distributed.peers import Peers, RankStatus
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.resilience.heartbeat import Heartbeat
from grpo_cli.run.folder import RunFolder


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.event = threading.Event()

    def note(self, level: str, text: str, hint: str = "") -> None:
        self.said.append(text)
        self.event.set()


def test_a_hang_is_named_once_and_its_stacks_are_in_the_log(tmp_path: Path) -> None:
    run, notes = RunFolder.create(tmp_path, "run", "grpo: 1\n", {}), Notes()
    heart: Any = Heartbeat(run, notes, limit_s=0.05, every_s=0.01)
    heart.beat("verify", 3, 8)
    with heart.watching():
        assert notes.event.wait(10)
    assert len(notes.said) == 1
    assert "`verify 3/8`" in notes.said[0]
    assert "test_heartbeat.py" in run.log_path.read_text()
    heart.beat("update")
    assert "goes on" in notes.said[1]


def test_a_run_that_moves_is_left_alone(tmp_path: Path) -> None:
    run, notes = RunFolder.create(tmp_path, "run", "grpo: 1\n", {}), Notes()
    heart: Any = Heartbeat(run, notes, limit_s=60, every_s=0.01)
    with heart.watching():
        heart.beat("generate", 1, 2)
        assert not notes.event.wait(0.1)


def test_a_hang_of_several_ranks_says_what_each_of_them_does(tmp_path: Path) -> None:
    run, notes = RunFolder.create(tmp_path, "run", "grpo: 1\n", {}), Notes()
    peers: Any = Peers(Ranks(0, 3))
    now = time.monotonic()
    peers._received = {
        1: (RankStatus(0, "a", "verify 3/8", 31.4), now),
        2: (RankStatus(1, "b", "update", 5.0), now - 60),
    }
    heart: Any = Heartbeat(run, notes, limit_s=0.05, every_s=0.01, peers=peers)
    heart.beat("update")
    with heart.watching():
        assert notes.event.wait(10)
    said = "; rank 1: 31s in `verify 3/8`; rank 2 on machine 1 (b): does not run for 60s, in `update`"
    assert said in notes.said[0]
    assert "stacks of rank 0" in run.log_path.read_text()
