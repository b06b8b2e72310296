"""A linked process: whatever it says or fails to say becomes a failure of its own, in time, and it is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from grpo_verifiers.processes.linked import (
    PLAIN_ENVIRONMENT,
    LinkedProcess,
    ProcessFailed,
    ProcessRefused,
    ProcessSilent,
)

SPEAKER = """
import json, os, socket, sys, time
link = socket.socket(fileno=int(sys.argv[1]))
def say(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    link.sendall(len(body).to_bytes(4, "big") + body)
def heard():
    size = link.recv(4, socket.MSG_WAITALL)
    if not size: os._exit(0)
    return json.loads(link.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
"""
READY = 'say({"id": 0, "ready": "yes"})\n'

started: list[LinkedProcess] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    while started:
        one = started.pop()
        one.close()
        assert one.process.returncode is not None


def link(script: str, largest: int = 1 << 16) -> LinkedProcess:
    """A process that does what the script says."""
    made = LinkedProcess(
        lambda fd: [sys.executable, "-c", SPEAKER + script, str(fd)],
        PLAIN_ENVIRONMENT,
        output=subprocess.DEVNULL,
        largest=largest,
    )
    started.append(made)
    return made


def test_it_greets_and_answers_under_the_number_of_the_question() -> None:
    one = link(READY + "while True: say(heard())")
    assert one.greet(20) == "yes"
    one.ask({"what": 7})
    one.tell({"id": 2, "only": "told"})
    assert one.receive(20) == {"what": 7, "id": 1}
    one._asked = 2
    assert one.receive(20)["only"] == "told"


def test_files_go_with_a_question() -> None:
    script = "data, files, _, _ = socket.recv_fds(link, 4, 8)\nlink.recv(100)\n"
    one = link(READY + script + 'os.write(files[0], b"written"); say({"id": 1})')
    one.greet(20)
    reads, writes = os.pipe()
    one.ask({"op": "write"}, [writes])
    one.receive(20)
    assert os.read(reads, 100) == b"written"
    os.close(reads)
    os.close(writes)


@pytest.mark.parametrize(
    "said", [b"{]", b"[" * 20_000, b"\xff\xfe", [1], {"id": 2, "status": 0}, {"status": 0}, {"id": "1"}, None]
)
def test_one_that_is_out_of_step_is_ended(said: object) -> None:
    one = link(READY + f"heard(); say({said!r}); time.sleep(60)")
    one.greet(20)
    one.ask({"op": "run"})
    with pytest.raises(ProcessFailed, match="out of step"):
        one.receive(20)
    assert not one.is_open and one.process.returncode is not None


@pytest.mark.parametrize(
    "script", ["os._exit(3)", 'link.sendall((1 << 30).to_bytes(4, "big")); time.sleep(60)', "link.close()"]
)
def test_one_that_dies_or_announces_too_much_has_failed(script: str) -> None:
    one = link(READY + "heard(); " + script)
    one.greet(20)
    one.ask({"op": "run"})
    with pytest.raises(ProcessFailed, match="died"):
        one.receive(20)


@pytest.mark.parametrize("script", ["", 'link.sendall(b"\\0\\0\\0\\5half"); '])
def test_silence_ends_in_time_also_in_the_middle_of_an_answer_and_is_looked_at_meanwhile(script: str) -> None:
    one = link(READY + f"heard(); {script}time.sleep(60)")
    one.greet(20)
    one.ask({"op": "run"})
    looks: list[float] = []
    began = time.monotonic()
    with pytest.raises(ProcessSilent):
        one.receive(0.5, lambda: looks.append(time.monotonic()))
    assert 0.4 < time.monotonic() - began < 5 and len(looks) >= 2
    assert one.is_open


def test_one_that_cannot_serve_says_why_and_one_that_says_nothing_is_given_up() -> None:
    with pytest.raises(ProcessRefused, match="no room") as caught:
        link('say({"id": 0, "failed": "no room"}); time.sleep(60)').greet(20)
    assert caught.value.why == "no room"
    with pytest.raises(ProcessSilent):
        link("time.sleep(60)").greet(0.3)
    with pytest.raises(ProcessFailed, match="died"):
        link("").greet(20)
    assert all(one.process.returncode is not None for one in started)
