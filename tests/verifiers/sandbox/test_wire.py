"""Messages as no honest sender makes them, to everything of the trusted side that reads one: nothing but a verdict comes of it."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers.program.compare import CompareRule, same
from grpo_verifiers.program.task import Defaults, compile_task
from grpo_verifiers.program.trial import _judge_line
from grpo_verifiers.sandbox import tiers

sys.path.insert(0, str(Path(tiers.__file__).parent))  # as a lane has it

from inside import frames, wire
from inside.testing.ends import Stopped
from inside.testing.link import Link

TAGS = """
i t d s f b B c r e D Q n q m T na ns h hc x en nt g ga co a L o cb it ob k P U mv zz np ge fn tc tx io rs sl mp nm cm re tz
zi ay ip tw
""".split()  # noqa: SIM905 - a table of names reads better than a line for each
KEYS = "n c t q d p b m kind e args fields v f s base members".split()  # noqa: SIM905 - as above
ATOMS: list[Any] = [
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    float("nan"),
    "",
    "x",
    "0x1",
    "{'a': (1, 2",
    "i4,i4",
    "class",
    "\ud800",
]


def message(draw: random.Random, depth: int = 0) -> Any:
    """A message as no honest sender makes it, mostly."""
    kind = draw.random()
    if depth > 4 or kind < 0.3:
        return draw.choice(ATOMS)
    if kind < 0.5:
        return [message(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind < 0.6:
        return {k: message(draw, depth + 1) for k in draw.sample(KEYS, 5)}
    return {draw.choice(TAGS): message(draw, depth + 1)}


def wire_fuzz(count: int) -> None:
    draw = random.Random(count)
    task = compile_task(
        {
            "entry_point": "f",
            "tests": [
                *("assert f(1) == [1, {'a': (2, 3.5)}]", "assert f(2)", "assert abs(f(3) - 1.5) < 1e-6"),
                *("assert sorted(f(4)) == [1]", "assert set(f(5)) == {1}", "assert len(f(6)[0]) in (1, 2)"),
                *("assert 1 in f(7)", "assert round(f(8)[0], 2) != 3", "assert isinstance(f(9), int)"),
            ],
        },
        Defaults("auto", "all", 4.0, 512, None),
    )
    for _ in range(count):
        said = message(draw)
        line = draw.choice([json.dumps({"v": said}), json.dumps(said), json.dumps(said)[:-1]]).encode()
        for call in task.calls:
            assert _judge_line(call, line, None).fate in ("passed", "failed", "limit", "undecided")
        for expected in (1, 2.5, "x", [1], (1,), {"a": 1}, {1}, b"x", None, 1 + 2j):
            with contextlib.suppress(
                RecursionError, ArithmeticError, TypeError, ValueError, LookupError, SyntaxError
            ):  # `_judge_line` takes these for "differs"
                same(expected, said, CompareRule(exact=draw.random() < 0.5, tolerance=1e-6))


@contextlib.contextmanager
def linked() -> Iterator[tuple[Link, socket.socket]]:
    """A link and the socket of its other side; closed when no thread reads or answers any more: the numbers of files that
    are closed are soon those of others."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(ours.fileno(), {}, frozenset(), False)
        try:
            yield link, theirs
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            exchange, end = link.exchange, time.monotonic() + 30
            while exchange.is_listening and not (exchange._is_gone and len(exchange._open) == 1):
                assert time.monotonic() < end, "threads go on"
                time.sleep(0.001)


def link_fuzz(count: int) -> None:
    draw = random.Random(count)
    for _ in range(count):
        with linked() as (link, theirs):
            head = draw.choice(["ok", "raise", "out", "call", "get", "input", "files", "next", "live", "warn", 3, None])
            for said in ([head, *[message(draw) for _ in range(draw.randrange(4))]], ["ok", message(draw)]):
                frames.send(theirs.fileno(), said)
            theirs.shutdown(socket.SHUT_WR)
            try:
                link.names(["f", "g"])
                link.call(0, ([1],), {})
            except Stopped:
                assert link.is_dead or link.handles is not None
            except Exception as err:  # noqa: BLE001 - an exception of the solution, as it may raise one
                assert link.raiser.is_known(err) or isinstance(err, StopIteration | StopAsyncIteration)


@pytest.mark.filterwarnings("ignore")
def test_no_message_raises_anything_but_a_verdict() -> None:
    wire_fuzz(4_000)
    link_fuzz(1_000)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_message_of_a_hundred_thousand_raises_anything_but_a_verdict() -> None:
    wire_fuzz(80_000)
    link_fuzz(20_000)


def test_the_wire_keeps_what_it_carries() -> None:
    import uuid
    from pathlib import PurePosixPath

    for value in (uuid.UUID(int=5), PurePosixPath("a/b"), memoryview(b"xy"), {1: (2, [3])}):
        assert wire.decode(json.loads(json.dumps(wire.encode(value)))) == value


@pytest.mark.parametrize("kind", [list, dict, set, bytearray])
def test_a_forged_content_of_a_container_of_the_test_waits_for_the_commit(kind: type) -> None:
    with linked() as (link, theirs):
        value = {list: [3, 1], dict: {1: 2}, set: {1}, bytearray: bytearray(b"ab")}[kind]
        before = kind(value)
        link.live.adopt(5, value)
        frames.send(theirs.fileno(), ["ok", {"L": [5, wire.encode(kind())]}])
        assert link.ask("get", {"k": 0}, "x") is value
        assert value == before  # `assert box.items == sorted(xs)` makes its expected value only now
        link.statements.commit()
        assert value == kind()
        frames.send(theirs.fileno(), ["ok", {"np": [5, {"n": 9, "kind": "plain"}, wire.encode(kind())]}])
        with pytest.raises(Stopped):
            link.ask("get", {"k": 0}, "x")


def test_a_result_is_an_argument_only_with_what_the_argument_has_become() -> None:
    with linked() as (link, theirs):
        xs = [3, 1]
        frames.send(theirs.fileno(), ["ok", {"tw": 0}, [[0, [1, 3]]]])
        got = link.call(0, (xs,), {})
        assert (
            got == [1, 3] and xs == [3, 1] and link.returned.is_same(got, xs) and not link.returned.is_same(got, [1, 3])
        )
        link.statements.commit()
        assert xs == [1, 3]
        frames.send(theirs.fileno(), ["ok", {"tw": 0}, []])
        with pytest.raises(Stopped):
            link.call(0, (xs,), {})


BEGUN = [[1, "begin", "t"]]


@pytest.mark.parametrize(
    "forged",
    [
        [[4, "begin", "t"]],
        [[1, "call", 0, [], {"d": []}]],
        [[1, "begin", 5]],
        [[1, "begin"]],
        [[2, "ok", 1]],
        [[n, "begin", "t"] for n in range(1, 601, 2)],
        [["pong", "x"]],
        [["waits", "x"]],
        [["waits", -1]],
        [["waits", float("inf")]],
        [5],
        [[]],
    ],
    ids=str,
)
def test_a_forged_conversation_ends_the_solution(forged: list[Any]) -> None:
    with linked() as (link, theirs):
        # from a thread of its own: so many wait for a reader
        sending = threading.Thread(target=send_all, args=(theirs.fileno(), [*forged, ["ok", 1]]))
        sending.start()
        with pytest.raises(Stopped):
            link.ask("get", {"k": 0}, "x")
        assert link.is_dead
        theirs.shutdown(socket.SHUT_RDWR)
        sending.join()


def send_all(fd: int, messages: list[Any]) -> None:
    with contextlib.suppress(frames.Closed):
        for message in messages:
            frames.send(fd, message)


@pytest.mark.parametrize(
    "forged",
    [
        [["redirect", ["stdout"]]],
        [["cwd", "/usr"]],
        [["pong", 1e9]],
        [["works"]],
        [*BEGUN, [1, "call", 999, [], {"d": []}]],
        [*BEGUN, [1, "end"]],
        [*BEGUN, [1, "ok", 1]],
        [["pong"]],
        [["threads"], ["threads"]],
    ],
    ids=str,
)
def test_a_forged_message_between_changes_nothing_of_the_test(forged: list[Any]) -> None:
    before = (sys.stdout, Path.cwd())
    with linked() as (link, theirs):
        for message in forged:
            frames.send(theirs.fileno(), message)
        frames.send(theirs.fileno(), ["ok", 7])
        assert link.ask("get", {"k": 0}, "x") == 7
        assert (sys.stdout, Path.cwd()) == before and not link.is_dead
