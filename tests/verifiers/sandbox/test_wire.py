"""Messages as no honest sender makes them, to everything of the trusted side that reads one: nothing but a verdict comes of it."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers.program.compare import CompareRule, same
from grpo_verifiers.program.task import Defaults, compile_task
from grpo_verifiers.program.trial import _judge_line
from grpo_verifiers.sandbox import tiers

sys.path.insert(0, str(Path(tiers.__file__).parent))  # as a lane has it

from inside import frames
from inside.wall import values
from inside.wall.connection import Connection
from inside.wall.exceptions import Stopped, Unsupported
from inside.wall.world import Surroundings

TAGS = """
i t d s f b B c r e D Q n q m T a ns h C x g L M k P U p S F E zz sl tz bm rw
""".split()  # noqa: SIM905 - a table of names reads better than a line for each
KEYS = "n c t d p b m e a s k o f i u h".split()  # noqa: SIM905 - as above
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
def linked() -> Iterator[tuple[Connection, socket.socket]]:
    """The test's end of a connection and the socket of its other side."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield (Connection(ours.fileno(), frozenset(), Surroundings(has_files=False, has_random=False)), theirs)


def linked_fuzz(count: int) -> None:
    draw = random.Random(count)
    heads = ["v", "x", "back", "limit", "names", 3, None]
    for _ in range(count):
        with linked() as (link, theirs):
            for said in (
                [draw.choice(heads), *[message(draw) for _ in range(draw.choice((1, 2, 2, 2, 5)))]],
                ["v", message(draw), {draw.choice("wklqof"): message(draw)}],
            ):
                frames.send(theirs.fileno(), said)
            theirs.shutdown(socket.SHUT_WR)
            try:
                link.names(["f", "g"])
                link.call(print, ([1],), {})
                link.commit()
            except Stopped:
                assert link.ended in ("false_message", "left_the_run", "limit")
            except Exception as err:  # noqa: BLE001 - an exception of the solution, as it may raise one
                assert any(e is err for e in link.raised) or isinstance(err, StopIteration | StopAsyncIteration)


@pytest.mark.filterwarnings("ignore")
def test_no_message_raises_anything_but_a_verdict() -> None:
    wire_fuzz(4_000)
    linked_fuzz(1_000)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_message_of_a_hundred_thousand_raises_anything_but_a_verdict() -> None:
    wire_fuzz(80_000)
    linked_fuzz(20_000)


def test_the_wire_keeps_what_it_carries() -> None:
    import uuid
    from pathlib import PurePosixPath

    for value in (uuid.UUID(int=5), PurePosixPath("a/b"), memoryview(b"xy"), {1: (2, [3])}):
        assert values.decode(json.loads(json.dumps(values.encode(value)))) == value


def reply(theirs: socket.socket, value: Any, **extras: Any) -> None:
    frames.send(theirs.fileno(), ["v", value, extras])


@pytest.mark.parametrize("kind", [list, dict, set, bytearray])
def test_a_forged_content_of_a_container_of_the_test_waits_for_the_commit(kind: type) -> None:
    with linked() as (link, theirs):
        value = {list: [3, 1], dict: {1: 2}, set: {1}, bytearray: bytearray(b"ab")}[kind]
        before = kind(value)
        reply(theirs, None, k=[[0, 5]])
        link.call(print, (value,), {})
        reply(theirs, {"L": [5]}, l=[[5, values.encode(kind())]])
        assert link.call(print, (), {}) is value
        assert value == before  # `assert box.items == sorted(xs)` makes its expected value only now
        link.commit()
        assert value == kind()
        reply(theirs, {"L": [6]})
        with pytest.raises(Stopped):
            link.call(print, (), {})
        assert link.ended == "false_message"


def test_a_result_is_an_argument_only_with_what_the_argument_has_become() -> None:
    with linked() as (link, theirs):
        xs = [3, 1]
        reply(theirs, {"W": 0}, w=[[0, [1, 3]]])
        got = link.call(print, (xs,), {})
        assert got == [1, 3] and xs == [3, 1] and link.same(got, xs) and not link.same(got, [1, 3])
        link.commit()
        assert xs == [1, 3]
        reply(theirs, {"t": [{"W": 0}, [1, 3, 5]]}, w=[[0, [1, 3, 5]]])
        one, other = link.call(print, (xs,), {})
        assert one == other == [1, 3, 5] and link.same(one, xs) and not link.same(other, xs)
        reply(theirs, {"W": 0})
        with pytest.raises(Stopped):
            link.call(print, (xs,), {})


def test_two_messages_in_a_row_are_false() -> None:
    with linked() as (link, theirs):
        reply(theirs, 1)
        reply(theirs, 2)
        with pytest.raises(Stopped):
            link.call(print, (), {})
        assert link.ended == "false_message"


@pytest.mark.parametrize(
    "forged",
    [
        ["back", 0, [], {}, {}],
        ["back", -1, [], {}, {}],
        ["back", 0, 5, {}, {}],
        ["v", 1],
        ["v", {"k": 0}, {}],
        ["v", {"h": [7, 3]}, {}],
        ["v", {"g": "eval"}, {}],
        ["v", {"F": ["Node", []]}, {}],
        ["v", {"zz": 1}, {}],
        ["v", 1, {"w": [[4, []]]}],
        ["x", {"c": ["os:system"], "a": 3, "s": "", "d": []}, {}],
        5,
        [],
    ],
    ids=str,
)
def test_a_forged_reply_is_a_false_message(forged: Any) -> None:
    with linked() as (link, theirs):
        frames.send(theirs.fileno(), forged)
        with pytest.raises(Stopped):
            link.call(print, (), {})
        assert link.ended == "false_message"


def test_what_is_not_carried_is_refused_before_anything_is_sent() -> None:
    with linked() as (link, theirs):
        with pytest.raises(Unsupported):
            link.call(print, (object(),), {})
        assert link.ended == "not_supported" and link.detail == "a object"
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
