"""`run.webhook`: what is sent, and that a hook that is down, slow or refuses costs the run nothing but a line."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from grpo_cli.display import webhook
from grpo_cli.display.choose import SilentDisplay
from grpo_cli.display.webhook import hook_url, tell_webhook
from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.recipe.reading.load import load
from grpo_cli.run.folder import RunFolder


class Noting(SilentDisplay):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, level: str, text: str, hint: str = "") -> None:
        self.notes.append(text)


@contextmanager
def listening(status: int) -> Iterator[tuple[str, list[dict[str, object]]]]:
    got: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?key=secret", got
    finally:
        server.shutdown()
        server.server_close()


def told(tmp_path: Path, url: str) -> list[str]:
    run, display = RunFolder.create(tmp_path, "a", "", {}), Noting()
    tell_webhook(url, "end", run, display, "a: done", {"status": "done", "before": float("nan")})
    return display.notes


def test_the_hook_gets_one_object_with_run_and_event(tmp_path: Path) -> None:
    with listening(200) as (url, got):
        assert told(tmp_path, url) == []
    assert got == [
        {"schema": 1, "event": "end", "run": "a", "path": str(tmp_path / "a"), "text": "a: done", "status": "done", "before": None}
    ]  # fmt: skip


def test_a_hook_that_refuses_is_named_without_its_secret(tmp_path: Path) -> None:
    with listening(403) as (url, _):
        assert told(tmp_path, url) == ["`run.webhook` did not receive `end`: 127.0.0.1 answers 403"]


def test_a_hook_that_is_down_is_a_line(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (note,) = told(tmp_path, f"http://127.0.0.1:{port}/")
    assert note.startswith("`run.webhook` did not receive `end`: 127.0.0.1 cannot be reached")


def test_a_hook_that_never_answers_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "PATIENCE_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        (note,) = told(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/")
    assert "does not answer" in note


def test_an_address_may_come_from_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://example.org/x")
    assert hook_url("env:HOOK") == "https://example.org/x"
    monkeypatch.delenv("HOOK")
    with pytest.raises(SetupError, match="variable HOOK, which is not set"):
        hook_url("env:HOOK")
    assert told(tmp_path, "env:HOOK") == ["end: `run.webhook` names the variable HOOK, which is not set"]


@pytest.mark.parametrize("value", ["example.org", "ftp://example.org", "http://", "env:", "env:1A"])
def test_what_is_no_address_is_a_mistake_of_the_recipe(value: str) -> None:
    with pytest.raises(RecipeError, match="webhook"):
        load("quickstart", [f"run.webhook={value}"])


@pytest.mark.parametrize(
    "url", ["http://[SECRET/x", "http://127.0.0.1:1/SECRET x", "http://127.0.0.1:SECRET/", "http://a\x1bSECRET/"]
)
def test_an_address_that_is_none_is_a_line_without_its_secret(tmp_path: Path, url: str) -> None:
    (note,) = told(tmp_path, url)
    assert "did not receive `end`" in note and "SECRET" not in note and "does not answer" not in note


def test_a_variable_with_a_blank_in_its_address_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://example.org/SECRET x")
    with pytest.raises(SetupError, match="holds no http") as caught:
        hook_url("env:HOOK")
    assert "SECRET" not in str(caught.value)


def test_a_recipe_with_no_address_is_told_so_without_the_secret() -> None:
    with pytest.raises(RecipeError, match="must be an address such as") as caught:
        load("quickstart", ["run.webhook='https://example.org/SECRET x'"])
    assert "SECRET" not in str(caught.value)
