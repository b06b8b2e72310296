"""A hub that does not answer is found out in seconds, and its libraries then work from their cache."""

from __future__ import annotations

import socket
import sys
import time
from types import ModuleType

import pytest

from grpo_cli.data import sources
from grpo_cli.data.sources import SET_OFFLINE, UNREACHABLE, hub_is_there, leave_hub, why_offline


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*sources.OFFLINE, "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sources, "_found", {})
    monkeypatch.setattr(sources, "getproxies", dict)


def port(*, listens: bool) -> tuple[socket.socket, str]:
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    if listens:
        held.listen()
    return held, f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("listens", [True, False])
def test_a_hub_answers_where_something_listens(monkeypatch: pytest.MonkeyPatch, listens: bool) -> None:
    held, address = port(listens=listens)
    monkeypatch.setenv("HF_ENDPOINT", address)
    with held:
        assert hub_is_there() is listens
    assert hub_is_there() is listens  # asked once


def test_the_proxy_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    held, address = port(listens=True)
    monkeypatch.setattr(sources, "getproxies", lambda: {"https": address})
    with held:
        assert hub_is_there()


def test_a_name_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(5) or [])
    began = time.perf_counter()
    assert not hub_is_there(0.2)
    assert time.perf_counter() - began < 2


def test_without_a_hub_libraries_that_are_loaded_go_offline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    held, address = port(listens=False)
    constants = ModuleType("huggingface_hub.constants")
    constants.HF_HUB_OFFLINE = False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    monkeypatch.setitem(sys.modules, "datasets.config", ModuleType("datasets.config"))
    monkeypatch.setenv("HF_ENDPOINT", address)
    with held:
        assert why_offline() is None
        assert leave_hub() == UNREACHABLE
    assert constants.HF_HUB_OFFLINE is True  # type: ignore[attr-defined]
    assert why_offline() == UNREACHABLE


def test_who_is_told_to_stay_offline_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(sources, "hub_is_there", lambda: pytest.fail("asked"))
    assert leave_hub() == SET_OFFLINE
