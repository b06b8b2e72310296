"""Signals that come while the main thread is inside the display."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from grpo_cli.distributed.peers import WARNINGS
from grpo_cli.errors import Exit
from grpo_cli.resilience.interrupt import Interrupts


def test_a_signal_that_finds_the_display_locked_is_said_once_it_is_free() -> None:
    lock, said = threading.Lock(), []

    def say(text: str) -> None:
        assert lock.acquire(timeout=20)
        said.append(text)
        lock.release()

    interrupts = Interrupts(say)
    with interrupts.handled(), interrupts.finish_step(), lock:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # the handler runs between two of these
            pass
        assert interrupts.asked == Exit.TERMINATED
        assert said == []
    assert len(said) == 1 and "finishing this step" in said[0]


@pytest.mark.parametrize("number", WARNINGS)
def test_what_a_scheduler_sends_before_it_kills_finishes_the_step(number: signal.Signals) -> None:
    interrupts = Interrupts()
    with interrupts.handled(), interrupts.finish_step():
        os.kill(os.getpid(), number)
        for _ in range(1000):  # the handler runs between two of these
            pass
        assert interrupts.asked == Exit.TERMINATED
    assert signal.getsignal(number) == signal.SIG_DFL
