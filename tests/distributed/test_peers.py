"""Ranks that speak through a store: who is heard, who failed, which machine is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore

from grpo_cli.distributed import peers as module
from grpo_cli.distributed.peers import Peers
from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import UserError

BROKEN = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")


def nobody(err: UserError) -> None:
    raise AssertionError(err.render())


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def store() -> Any:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=2))


@pytest.fixture
def make(store: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Peers]:
    """Ranks of one rank a machine, which speak twenty times as fast as real ones."""
    monkeypatch.setattr(module, "OLD_S", 0.5)

    def made(rank: int, **more: Any) -> Peers:
        def connect() -> Any:
            return TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=2))

        one = Peers(Ranks(rank, 2), rank, connect=connect, **more)
        one.every_s = 0.05
        one._old_s = 0.5
        return one

    return made


def test_what_another_rank_does_is_heard(make: Callable[..., Peers]) -> None:
    zero, one = make(0), make(1)
    with zero.watching(nobody), one.watching(nobody):
        one.leave("verify 3/8", 31.4)
        until(lambda: "31s in `verify 3/8`" in zero.others())
        assert zero.others().startswith("rank 1 on machine 1 (")
    until(lambda: "does not run for" in zero.others() or zero._age(1) > 0.5)


def test_the_error_of_a_rank_explains_the_broken_connection_of_another(make: Callable[..., Peers]) -> None:
    zero, one = make(0), make(1)
    told = threading.Event()

    def fail() -> None:
        with pytest.raises(ImportError), one.watching(nobody):
            until(lambda: bool(zero._received))
            raise ImportError("no such thing")
        told.set()

    threading.Thread(target=fail).start()
    failed = r"rank 1 on machine 1 .* failed first: ImportError: no such thing"
    with pytest.raises(UserError, match=failed), zero.watching(nobody):
        assert told.wait(20)
        raise BROKEN


def test_a_silent_rank_explains_it_too(make: Callable[..., Peers]) -> None:
    zero, one = make(0), make(1)
    gone = r"rank 1 on machine 1 .* is gone: Connection closed by peer"
    with pytest.raises(UserError, match=gone), zero.watching(nobody):
        with one.watching(nobody):
            until(lambda: bool(zero._received))
        raise BROKEN


def test_an_error_of_its_own_stays_what_it_is(make: Callable[..., Peers]) -> None:
    zero, one = make(0), make(1)
    with one.watching(nobody), pytest.raises(RuntimeError, match="shapes"), zero.watching(nobody):
        until(lambda: bool(zero._received))
        raise RuntimeError("shapes do not match")


@pytest.mark.parametrize("silent", [0, 1])
def test_a_machine_that_is_not_heard_any_more_is_lost(make: Callable[..., Peers], store: Any, silent: int) -> None:
    pair = [make(0, lost_s=1.0), make(1, lost_s=1.0)]
    told: list[UserError] = []
    with pair[1 - silent].watching(told.append):
        with pair[silent].watching(nobody):
            until(lambda: bool(pair[1 - silent]._received))
        until(lambda: bool(told))
    assert f"machine {silent} (" in told[0].render()
    assert "was not heard for" in told[0].render()
