"""Requests to stop: what schedulers send twice is one, what a person types twice is two."""

from __future__ import annotations

import signal

import pytest

from grpo_cli.distributed import peers
from grpo_cli.distributed.peers import WARNINGS, StopRequests, stop_signals


def test_two_quick_sigterms_are_one_request_and_two_quick_ctrl_c_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 10.1, 12.0, 20.0, 30.0, 30.1])
    monkeypatch.setattr(peers.time, "monotonic", lambda: next(now))
    term, typed = StopRequests(), StopRequests()
    assert [term.counts(signal.SIGTERM) for _ in range(4)] == [True, False, False, True]
    assert [typed.counts(signal.SIGINT) for _ in range(2)] == [True, True]
    assert (term.count, typed.count) == (2, 2)


def test_a_hangup_that_nohup_had_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == [signal.SIGINT, signal.SIGTERM, *WARNINGS]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert stop_signals() == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *WARNINGS]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_warning_that_the_program_uses_itself_stops_nothing() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert signal.SIGUSR1 not in stop_signals()
        assert signal.SIGUSR2 in stop_signals()
    finally:
        signal.signal(signal.SIGUSR1, before)
