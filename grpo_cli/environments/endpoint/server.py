"""The HTTP side: requests of harnesses on the loopback interface, each with the token of its episode, and the answers to them.

How this works. `EpisodeEndpoint` binds a free port of 127.0.0.1 and serves each connection in a thread. A request that belongs to an open
episode and makes sense becomes a `Ticket` in a queue; its thread waits until the owner of the queue has settled it, and watches
meanwhile whether the client is still there. Threads touch neither model nor tokenizer. A retry, as the SDKs mark them, joins the
request it repeats or is sent the same answer. Standard library only: a few dozen harnesses of this machine are served, not the web.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import queue
import re
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from grpo_cli.environments.endpoint.dialects import DIALECTS, Dialect, Event, models
from grpo_cli.environments.endpoint.messages import Asked, Reply, RequestRefused

Arrived = socket.socket | tuple[bytes, socket.socket]
Sender = tuple[str, int] | str
"""As socketserver hands them over."""

log = logging.getLogger("grpo_verifiers")

LOOPBACK = "127.0.0.1"
LARGEST = 16 * 2**20
"""Bytes of a request."""
MOST_OPEN = 64
"""Requests of one episode that are under way."""
MOST_CONNECTIONS = 1024
SILENT_S = 30.0
"""A connection that sends nothing for so long is closed."""
COMMENT_S = 3.0
"""Between two comment lines of a stream that waits for its turn."""
LOOK_S = 0.05
"""Between two looks at whether a client is still there."""
_PATH = re.compile(r"/e/([A-Za-z0-9-]{1,64})/v1/([a-z_/]{1,64})")


@dataclass(slots=True)
class Ticket:
    """One request under way. The owner of the queue calls `settle` once; a thread a client waits for it."""

    episode: str
    asked: Asked
    body: str
    """A digest of the request, equal for its retries."""
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    reply: Reply | None = None
    refusal: RequestRefused | None = None
    waiting: int = 0
    was_sent: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.waiting == 0

    def settle(self, outcome: Reply | RequestRefused) -> None:
        """Gives all that wait their answer."""
        if isinstance(outcome, RequestRefused):
            self.refusal = outcome
        else:
            self.reply = outcome
        self.done.set()


@dataclass(slots=True)
class _Open:
    """An episode that is played: its tickets by the digest of their request, or by the key that its retries carry."""

    tickets: dict[str, Ticket] = field(default_factory=dict)
    every: list[Ticket] = field(default_factory=list)
    retries: int = 0


class EpisodeEndpoint:
    """Serves until `close`; `context` is that of the model, for the list of models."""

    def __init__(self, context: int | None) -> None:
        self.context = context
        self.arrived: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._open: dict[str, _Open] = {}
        self._server = _Server(self)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="grpo-endpoint", daemon=True).start()

    def open(self, episode: str) -> dict[str, str]:
        """Begins an episode of this name, of letters, digits and `-`; the environment variables with which SDKs find it."""
        with self.lock:
            self._open[episode] = _Open()
        root, key = f"http://{LOOPBACK}:{self.port}/e/{episode}", self.token(episode)
        return {
            "OPENAI_BASE_URL": f"{root}/v1",
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": root,
            "ANTHROPIC_API_KEY": key,
        }

    def end(self, episode: str, refusal: RequestRefused | None = None) -> tuple[int, int]:
        """Ends an episode: its key is void, and what still waits gets the refusal. How many retries it had, and how many requests
        got no answer."""
        with self.lock:
            found = self._open.pop(episode)
        for ticket in found.every:
            if not ticket.done.is_set():
                ticket.settle(refusal or _OVER)
        sent = {ticket.body for ticket in found.every if ticket.was_sent}
        return found.retries, len({ticket.body for ticket in found.every} - sent)

    def token(self, episode: str) -> str:
        """The key of an episode."""
        return hmac.new(self._secret, episode.encode(), hashlib.sha256).hexdigest()

    def close(self) -> None:
        """Stops listening; whoever waits gets no answer."""
        self._server.shutdown()
        self._server.server_close()

    def admit(self, episode: str, given: str) -> None:
        """Raises RequestRefused where the key is not that of the episode (401), or the episode is not open (409)."""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token(episode).encode()):
            raise RequestRefused("the key is not that of this address", status=401, code="invalid_api_key")
        with self.lock:
            if episode not in self._open:
                raise _OVER

    def ticket(self, episode: str, asked: Asked, body: str, key: str, *, is_retry: bool) -> Ticket:
        """The ticket of a request: a new one, or that of the request it repeats.

        Raises:
            RequestRefused: the episode is over (409), or too many requests are under way (429).
        """
        with self.lock:
            found = self._open.get(episode)
            if found is None:
                raise _OVER
            old = found.tickets.get(key or body)
            # a key names one request whatever else is sent; without one only a marked retry is no new request
            is_same = old is not None and (key or is_retry) and old.body == body and old.refusal is None
            if old is not None and is_same and (old.done.is_set() or not old.is_gone):
                found.retries += 1
                old.waiting += 1
                return old
            if sum(not ticket.done.is_set() and not ticket.is_gone for ticket in found.every) >= MOST_OPEN:
                raise RequestRefused(
                    f"more than {MOST_OPEN} requests are under way", status=429, code="too_many_requests"
                )
            ticket = Ticket(episode, asked, body, waiting=1)
            found.tickets[key or body] = ticket
            found.every.append(ticket)
        self.arrived.put(ticket)
        return ticket


_OVER = RequestRefused("this episode is over", status=409, code="episode_over")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, endpoint: EpisodeEndpoint) -> None:
        self.endpoint = endpoint
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((LOOPBACK, 0), _Handler)

    def process_request(self, request: Arrived, client_address: Sender) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Arrived, client_address: Sender) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Arrived, client_address: Sender) -> None:
        """Logs what broke a thread; a client that hung up is no error of ours."""
        err = sys.exc_info()[1]
        if not isinstance(err, OSError):
            log.warning("endpoint: a request broke its thread: %r", err, exc_info=err)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "grpo", ""
    timeout = SILENT_S
    wbufsize = 65536
    was_read = has_begun = False

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a request of a harness is no line of a run's log."""

    def do_GET(self) -> None:
        try:
            _, route = self._admitted()
            if route not in ("models", "models/policy"):
                raise RequestRefused(f"no `{route}` to get here", status=404, code="not_found")
        except RequestRefused as err:
            self._refuse(err, DIALECTS["chat/completions"])
            return
        found = models(self.server.endpoint.context)
        self._send(200, found if route == "models" else found["data"][0])

    def do_POST(self) -> None:
        # one handler serves all requests of a connection
        self.was_read = self.has_begun = False
        dialect = DIALECTS["chat/completions"]
        try:
            episode, route = self._admitted()
            if route not in DIALECTS:
                served = ", ".join(f"`{name}`" for name in DIALECTS)
                raise RequestRefused(f"no `{route}` here: {served} are served", status=404, code="not_found")
            dialect = DIALECTS[route]
            raw = self._body()
            digest = hashlib.sha256(route.encode() + b" " + raw).hexdigest()
            try:
                body = json.loads(raw)
            except (ValueError, RecursionError) as err:
                raise RequestRefused("the body is no JSON") from err
            if not isinstance(body, dict):
                raise RequestRefused("the body is no JSON object")
            key = (self.headers.get("Idempotency-Key") or "")[:256]
            retried = self.headers.get("X-Stainless-Retry-Count", "0")
            ticket = self.server.endpoint.ticket(
                episode, dialect.read(body), digest, key, is_retry=retried not in ("", "0")
            )
        except RequestRefused as err:
            self._refuse(err, dialect)
            return
        try:
            if self._wait(ticket):
                # before the last byte leaves: the client may be done, and its episode over, right behind it
                ticket.was_sent = True
                self._answer(ticket, dialect)
        except OSError:
            ticket.was_sent, self.close_connection = False, True
        finally:
            with self.server.endpoint.lock:
                ticket.waiting -= 1

    def _admitted(self) -> tuple[str, str]:
        """Episode and route of a request that may be answered.

        Raises:
            RequestRefused: another host is meant, there is no such address, or the key is wrong.
        """
        endpoint = self.server.endpoint
        # a page of the web whose name was pointed at this address says so
        if self.headers.get("Host") not in (f"{LOOPBACK}:{endpoint.port}", f"localhost:{endpoint.port}"):
            raise RequestRefused("this host is not served", status=403, code="wrong_host")
        found = _PATH.fullmatch(self.path.partition("?")[0])
        if found is None:
            raise RequestRefused("there is no such address", status=404, code="not_found")
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        endpoint.admit(found[1], bearer or self.headers.get("X-Api-Key", ""))
        return found[1], found[2].removesuffix("/")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length")
        if length is None or self.headers.get("Transfer-Encoding"):
            raise RequestRefused("a request needs a `Content-Length`", status=411, code="length_required")
        if not (length.isascii() and length.isdigit()):
            raise RequestRefused("`Content-Length` is no number")
        if len(length) > 12 or int(length) > LARGEST:
            raise RequestRefused(f"a request may have {LARGEST:,} bytes", status=413, code="too_large")
        try:
            raw = self.rfile.read(int(length))
        except OSError as err:
            raise RequestRefused("the request did not come to its end", status=408, code="timeout") from err
        if len(raw) < int(length):
            raise RequestRefused("the request did not come to its end", status=408, code="timeout")
        self.was_read = True
        return raw

    def _wait(self, ticket: Ticket) -> bool:
        """Whether the client is still there when the ticket is settled; a stream gets a comment line now and then."""
        look = select.poll()
        look.register(self.connection, select.POLLIN)
        commented = time.monotonic()
        while not ticket.done.wait(LOOK_S):
            # a client that waits sends nothing: what can be read is its end
            if look.poll(0) and not self.connection.recv(1, socket.MSG_PEEK):
                self.close_connection = True
                return False
            if ticket.asked.stream and time.monotonic() - commented > COMMENT_S:
                commented = time.monotonic()
                self._chunk(b": wait\n\n")
        return True

    def _answer(self, ticket: Ticket, dialect: Dialect) -> None:
        if ticket.refusal is not None and not self.has_begun:
            self._refuse(ticket.refusal, dialect)
        elif ticket.refusal is not None:
            self._stream(iter([("error", dialect.error(ticket.refusal))]))
        elif ticket.reply is not None and ticket.asked.stream:
            self._stream(dialect.events(ticket.reply, ticket.asked, ticket.name))
        elif ticket.reply is not None:
            self._send(200, dialect.answer(ticket.reply, ticket.asked, ticket.name))

    def _chunk(self, data: bytes) -> None:
        # only now: what is refused before has a status of its own
        if not self.has_begun:
            self.has_begun = True
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _stream(self, events: Iterator[Event]) -> None:
        for kind, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            self._chunk(f"{f'event: {kind}{chr(10)}' if kind else ''}data: {text}\n\n".encode())
        self._chunk(b"")

    def _refuse(self, err: RequestRefused, dialect: Dialect) -> None:
        # a body that was not read would be taken for the next request
        self.close_connection = self.close_connection or (self.command == "POST" and not self.was_read)
        self._send(err.status, dialect.error(err))

    def _send(self, status: int, found: dict[str, Any]) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
