"""A chat endpoint in the form of OpenAI's, asked with patience and within bounds: deadlines, retries, a rate, a budget.

Nothing it says is trusted: whatever is no chat completion is an error that says so, never an empty reply.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
MOST_BYTES = 4 << 20
_AGAIN = (408, 409, 425, 429)


class NoReply(Exception):
    """The endpoint gave no usable reply; `reason` is a short stable code."""

    def __init__(self, reason: str, message: str, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.pause_s = reason, pause_s


class _Again(NoReply):
    """A failure that another call may not have."""


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Where the endpoint is and how it may be asked. `per_minute` and `budget` count calls, retries among them."""

    base_url: str
    key: str | None
    timeout_s: float
    retries: int
    per_minute: float | None
    budget: int | None


class Endpoint:
    """May be asked from many threads at once."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._url = urlsplit(settings.base_url)
        self._lock = threading.Lock()
        self._next = 0.0
        self.calls = 0

    def reach(self) -> str:
        """Why nobody can be reached there; empty where somebody answers, whatever that is."""
        try:
            self._request("GET", "/models", None, time.monotonic() + min(10.0, self._settings.timeout_s))
        except NoReply as err:
            return str(err) if err.reason in ("unreachable", "timeout") else ""
        return ""

    def chat(self, body: Mapping[str, Any]) -> str:
        """The text of the reply.

        Raises:
            NoReply: there was none, also after all retries, or the budget is used up.
        """
        for attempt in range(self._settings.retries + 1):
            self._wait_for_turn()
            try:
                return self._once(body)
            except _Again as err:
                if attempt == self._settings.retries:
                    raise
                pause = FIRST_PAUSE_S * 2**attempt if err.pause_s is None else err.pause_s
                time.sleep(min(pause, LONGEST_PAUSE_S))
        raise AssertionError

    def _wait_for_turn(self) -> None:
        settings = self._settings
        with self._lock:
            if settings.budget is not None and self.calls >= settings.budget:
                raise NoReply("budget", f"the budget of {settings.budget:,} calls is used up")
            self.calls += 1
            now = time.monotonic()
            turn = max(now, self._next)
            if settings.per_minute is not None:
                self._next = turn + 60.0 / settings.per_minute
        time.sleep(turn - now)

    def _once(self, body: Mapping[str, Any]) -> str:
        data = json.dumps(body).encode()
        status, headers, text = self._request(
            "POST", "/chat/completions", data, time.monotonic() + self._settings.timeout_s
        )
        if status != 200:
            message = f"HTTP {status}: {' '.join(text.decode('utf-8', 'replace').split())[:200]}"
            if status in _AGAIN or status >= 500:
                raise _Again(f"http_{status}", message, _pause(headers.get("retry-after")))
            raise NoReply(f"http_{status}", message)
        return _content(text)

    def _request(
        self, method: str, path: str, data: bytes | None, deadline: float
    ) -> tuple[int, dict[str, str], bytes]:
        settings, url = self._settings, self._url
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if settings.key:
            headers["Authorization"] = f"Bearer {settings.key}"
        connection = self._connection(max(0.1, deadline - time.monotonic()))
        try:
            connection.request(method, url.path.rstrip("/") + path, data, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, _body(response, connection, deadline)
        except TimeoutError as err:
            raise _Again("timeout", f"no reply within {settings.timeout_s:g} s") from err
        except (OSError, http.client.HTTPException, ValueError) as err:  # a key that no header holds
            raise _Again("unreachable", f"{type(err).__name__}: {err}"[:200]) from err
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        url = self._url
        assert url.hostname is not None
        if url.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)


def key_from(variable: str | None) -> str | None:
    """The key in an environment variable; None where none is named or it is not set."""
    return os.environ.get(variable) if variable else None


def _body(
    response: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float
) -> bytes:
    """All of the body before the deadline, however slowly it drips."""
    parts: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left)
        part = response.read1(65536)
        if not part:
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise NoReply("too_long", f"the reply is longer than {MOST_BYTES:,} bytes")


def _pause(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:  # a date
        return None


def _content(text: bytes) -> str:
    """The reply of a chat completion."""
    try:
        choice = json.loads(text)["choices"][0]
        content, finish = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as err:
        raise _Again("no_completion", f"the reply is no chat completion: {text[:120]!r}") from err
    if finish == "length":
        raise NoReply("cut", "the reply was cut at `max_tokens`")
    if not isinstance(content, str) or not content.strip():
        raise _Again("empty", "the reply is empty")
    return content
