"""Rewards that are right but for every fourth call, which fails in a way that no completion has caused."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

CALLS = "GRPO_TEST_CALLS"
"""Names the file that counts calls over all workers."""


def is_fourth() -> bool:
    with open(os.environ[CALLS], "ab") as file:
        file.write(b"x")
        return file.tell() % 4 == 3


def fails(how: Callable[[], Any]) -> Callable[[str, str], Any]:
    @functools.wraps(how, assigned=())
    def reward(completion: str, answer: str) -> Any:
        return how() if is_fourth() else 1.0

    del reward.__wrapped__
    return reward


def throws(err: BaseException) -> Callable[[str, str], Any]:
    def throw() -> None:
        raise err

    return fails(throw)


class Mute(Exception):
    """Its message cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Quits(Exception):
    """Its message ends the process."""

    def __str__(self) -> str:
        raise SystemExit(3)


class NoNumber:
    """Claims to be an array of one number."""

    def item(self) -> float:
        raise LookupError("lost")


class NoWords:
    def __str__(self) -> str:
        raise LookupError("lost")


def _recursion() -> Any:
    return _recursion()


def _in_a_thread() -> Any:
    out: list[float] = []
    thread = threading.Thread(target=lambda: out.append(1 / int("0")))
    thread.start()
    thread.join()
    return out[0]


def _spin() -> None:
    while True:
        pass


def _numbers() -> Any:
    yield 1.0


async def _later() -> float:
    raise ConnectionResetError("peer")


connection_refused = fails(lambda: socket.create_connection(("127.0.0.1", 9), timeout=1))
dns = fails(lambda: socket.getaddrinfo("nowhere.invalid", 80))
http = fails(lambda: urllib.request.urlopen("http://127.0.0.1:9/"))
timeout = throws(TimeoutError("slow"))
child_timeout = fails(lambda: subprocess.run(["sleep", "9"], timeout=0.05))
reset_later = fails(_later)
killed = fails(lambda: os.kill(os.getpid(), signal.SIGKILL))
crashed = fails(lambda: os.kill(os.getpid(), signal.SIGSEGV))
exits = fails(lambda: os._exit(0))
memory = throws(MemoryError())
eats = fails(lambda: len(bytearray(10**13)))
hangs = fails(lambda: time.sleep(3600))
spins = fails(_spin)
recursion = fails(_recursion)
no_fork = throws(BlockingIOError(11, "Resource temporarily unavailable"))
no_thread = throws(RuntimeError("can't start new thread"))
in_a_thread = fails(_in_a_thread)
missing_import = fails(lambda: __import__("no_such_module_here"))
not_carried = throws(NotImplementedError("data source x"))
interrupted = throws(KeyboardInterrupt())
left = throws(SystemExit(1))
cancelled = throws(asyncio.CancelledError())
generator_exit = throws(GeneratorExit())
mute = throws(Mute())
quits = throws(Quits())
surrogate = throws(RuntimeError("bad \udcff \x1b[31m red"))
group = throws(ExceptionGroup("many", [ValueError("a"), OSError("b")]))
locked = throws(RuntimeError("database is locked"))
key = throws(KeyError("x"))
returns_text = fails(lambda: "1.0")
returns_list = fails(lambda: [1.0])
returns_dict = fails(lambda: {"scor": 1})
returns_complex = fails(lambda: 1j)
returns_nan = fails(lambda: float("nan"))
returns_inf = fails(lambda: float("-inf"))
returns_huge = fails(lambda: 1e308)
returns_huge_score = fails(lambda: {"score": -1e200})
returns_none = fails(lambda: None)
returns_generator = fails(_numbers)
returns_type = fails(lambda: float)
returns_no_number = fails(NoNumber)
returns_no_words = fails(lambda: {"score": 1.0, "detail": NoWords()})


async def waits_for_refused(completion: str, answer: str) -> float:
    if is_fourth():
        raise ConnectionRefusedError("no")
    return 1.0


async def waits_and_leaves(completion: str, answer: str) -> float:
    if is_fourth():
        raise SystemExit(3)
    return 1.0


async def waits_and_is_mute(completion: str, answer: str) -> float:
    if is_fourth():
        raise Mute
    return 1.0


async def waits_and_hangs(completion: str, answer: str) -> float:
    if is_fourth():
        await asyncio.sleep(3600)
    return 1.0


def lists_refused(completions: list[str], answer: list[str]) -> list[float]:
    if any(is_fourth() for _ in completions):
        raise ConnectionRefusedError("no")
    return [1.0] * len(completions)


def lists_too_few(completions: list[str], answer: list[str]) -> list[float]:
    return [1.0] * (len(completions) - any(is_fourth() for _ in completions))


def lists_too_many(completions: list[str], answer: list[str]) -> list[float]:
    return [1.0] * (len(completions) + any(is_fourth() for _ in completions))


def lists_hold_text(completions: list[str], answer: list[str]) -> list[Any]:
    return ["1.0" if is_fourth() else 1.0 for _ in completions]


def lists_hold_none(completions: list[str], answer: list[str]) -> list[Any]:
    return [None if is_fourth() else 1.0 for _ in completions]
