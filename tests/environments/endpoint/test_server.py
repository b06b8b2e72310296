"""The HTTP side, over real sockets: whom it serves, what it refuses, retries, clients that hang up, and 10,000 malformed requests."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from grpo_cli.environments.endpoint import server
from grpo_cli.environments.endpoint.messages import Message, Reply, RequestRefused
from grpo_cli.environments.endpoint.server import EpisodeEndpoint, Ticket

BODY = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


class Owner:
    """Answers what arrives, as a play does, with the number of the request; `hold` keeps it from answering."""

    def __init__(self) -> None:
        self.endpoint = EpisodeEndpoint(512)
        self.env = self.endpoint.open("1-0")
        self.key = self.env["OPENAI_API_KEY"]
        self.seen: list[Ticket] = []
        self.hold = threading.Event()
        self.hold.set()
        self.refusal: RequestRefused | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            ticket = self.endpoint.arrived.get()
            self.seen.append(ticket)
            self.hold.wait()
            text = f"answer {len(self.seen)}"
            ticket.settle(self.refusal or Reply(Message("assistant", text), "stop", [1], [2], [-0.1]))

    def ask(self, body: object = BODY, path: str = "/e/1-0/v1/chat/completions", **headers: str) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self.endpoint.port, timeout=10)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {self.key}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request("POST", path, raw, {k: v for k, v in given.items() if v is not None})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def opened(self, **headers: str) -> socket.socket:
        """A connection that has sent a whole request and waits."""
        raw = json.dumps(BODY).encode()
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        client = socket.create_connection(("127.0.0.1", self.endpoint.port), timeout=10)
        head = f"POST /e/1-0/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.endpoint.port}\r\n"
        client.sendall(
            f"{head}Authorization: Bearer {self.key}\r\n{more}Content-Length: {len(raw)}\r\n\r\n".encode() + raw
        )
        return client

    def until(self, number: int) -> None:
        end = time.monotonic() + 10
        while len(self.seen) < number:
            assert time.monotonic() < end, f"{len(self.seen)} of {number} requests arrived"
            time.sleep(0.01)


@pytest.fixture
def owner() -> Iterator[Owner]:
    found = Owner()
    yield found
    found.hold.set()
    found.endpoint.close()


def text_of(body: dict) -> str:
    return body["choices"][0]["message"]["content"]


def test_it_listens_on_the_loopback_interface_alone(owner):
    wanted = f"{owner.endpoint.port:04X}"
    listening = [
        line.split()[1]
        for name in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(name).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{wanted}")
    ]
    assert listening == [f"0100007F:{wanted}"]


def test_a_request_with_its_key_is_answered_in_every_dialect(owner):
    assert text_of(owner.ask()[1]) == "answer 1"
    status, found = owner.ask({"input": "q"}, "/e/1-0/v1/responses")
    assert status == 200 and found["output"][0]["content"][0]["text"] == "answer 2"
    body = BODY | {"max_tokens": 3}
    status, found = owner.ask(body, "/e/1-0/v1/messages", Authorization=None, X_Api_Key=owner.key)
    assert status == 200 and found["content"][0]["text"] == "answer 3"
    assert owner.ask(BODY, "/e/1-0/v1/messages/count_tokens") == (200, {"input_tokens": 1})
    assert owner.env["ANTHROPIC_BASE_URL"] + "/v1" == owner.env["OPENAI_BASE_URL"]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer é"}, 401),
        ({"path": "/e/1-1/v1/chat/completions"}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"path": "/e/1-0/v1/embeddings"}, 404),
        ({"path": "/v1/chat/completions"}, 404),
        ({"Content_Length": "x"}, 400),
        ({"Content_Length": "99999999999"}, 413),
        ({"body": b"{"}, 400),
        ({"body": b"[]"}, 400),
        ({"body": b"\xff"}, 400),
        ({"body": b"[" * 100_000}, 400),
    ],
)
def test_other_requests_are_refused_and_never_arrive(owner, given, status):
    found, body = owner.ask(**given)
    assert found == status and body["error"]["message"]
    assert not owner.seen


def test_the_key_of_one_episode_opens_no_other_and_none_after_the_end(owner):
    other = owner.endpoint.open("1-1")["OPENAI_API_KEY"]
    assert owner.ask(Authorization=f"Bearer {other}")[0] == 401
    owner.endpoint.end("1-0")
    status, body = owner.ask()
    assert (status, body["error"]["code"]) == (409, "episode_over")
    assert not owner.seen


def test_the_models_are_listed_for_the_key_alone(owner):
    connection = http.client.HTTPConnection("127.0.0.1", owner.endpoint.port, timeout=10)
    for path, key, status in (("models", owner.key, 200), ("models/policy", owner.key, 200), ("models", "x", 401)):
        connection.request("GET", f"/e/1-0/v1/{path}", headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status == status
        if status == 200:
            assert (found["id"] if "/" in path else found["data"][0]["id"]) == "policy"
        assert answer.getheader("Access-Control-Allow-Origin") is None


def test_a_marked_retry_joins_its_request_or_is_sent_the_same_answer(owner):
    owner.hold.clear()
    first = owner.opened()
    owner.until(1)
    again = owner.opened(X_Stainless_Retry_Count="1")
    time.sleep(0.2)
    first.close()
    time.sleep(0.2)
    # the second still waits for what the first has asked
    assert len(owner.seen) == 1 and not owner.seen[0].is_gone
    owner.hold.set()
    assert b"answer 1" in again.recv(4096)
    assert text_of(owner.ask(X_Stainless_Retry_Count="2")[1]) == "answer 1"
    # without a mark the same words are a new request
    assert text_of(owner.ask()[1]) == "answer 2"
    assert owner.endpoint.end("1-0") == (2, 0)


def test_a_key_names_one_request(owner):
    assert text_of(owner.ask(Idempotency_Key="k")[1]) == "answer 1"
    assert text_of(owner.ask(Idempotency_Key="k")[1]) == "answer 1"
    assert text_of(owner.ask(BODY | {"seed": 1}, Idempotency_Key="k")[1]) == "answer 2"
    assert text_of(owner.ask(Idempotency_Key="other")[1]) == "answer 3"


def test_a_client_that_hangs_up_is_seen_and_its_request_is_lost_unless_it_asks_again(owner):
    owner.hold.clear()
    owner.opened().close()
    owner.until(1)
    end = time.monotonic() + 5
    while not owner.seen[0].is_gone and time.monotonic() < end:
        time.sleep(0.01)
    assert owner.seen[0].is_gone
    owner.hold.set()
    assert owner.endpoint.end("1-0") == (0, 1)
    owner.endpoint.open("1-0")
    owner.hold.clear()
    owner.opened().close()
    owner.until(2)
    owner.hold.set()
    time.sleep(0.3)
    assert owner.ask(X_Stainless_Retry_Count="1")[0] == 200
    assert owner.endpoint.end("1-0")[1] == 0


def test_a_stream_comes_after_the_turn_and_a_refusal_has_its_own_status(owner, monkeypatch):
    monkeypatch.setattr(server, "COMMENT_S", 0.1)
    connection = http.client.HTTPConnection("127.0.0.1", owner.endpoint.port, timeout=10)
    headers = {"Authorization": f"Bearer {owner.key}"}
    raw = json.dumps(BODY | {"stream": True, "stream_options": {"include_usage": True}})
    owner.hold.clear()
    connection.request("POST", "/e/1-0/v1/chat/completions", raw, headers)
    time.sleep(0.4)
    owner.hold.set()
    answer = connection.getresponse()
    lines = answer.read().decode().split("\n\n")
    assert answer.getheader("Content-Type") == "text/event-stream"
    assert lines.count(": wait") >= 2 and lines[-2] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == "answer 1"
    assert chunks[-1]["usage"]["completion_tokens"] == 1
    # on the same connection: the stream has ended where it said so
    owner.refusal = RequestRefused("too long", code="context_length_exceeded")
    connection.request("POST", "/e/1-0/v1/chat/completions", raw, headers)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["code"]) == (400, "context_length_exceeded")


def test_more_than_64_requests_of_an_episode_are_refused(owner):
    owner.hold.clear()
    clients = [owner.opened() for _ in range(server.MOST_OPEN)]
    end = time.monotonic() + 10
    while time.monotonic() < end and owner.ask(b"[]")[0] and owner.endpoint._open["1-0"].every[-1:] == []:
        time.sleep(0.01)
    while len(owner.endpoint._open["1-0"].every) < server.MOST_OPEN and time.monotonic() < end:
        time.sleep(0.01)
    assert owner.ask()[0] == 429
    owner.hold.set()
    for client in clients:
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.close()


def test_ten_thousand_malformed_requests_crash_nothing_and_none_is_served_without_its_key(owner, caplog):
    chance = random.Random(0)
    whole = json.dumps(BODY | {"tools": [], "stop": ["x"], "stream": False}).encode()
    paths = ["/e/1-0/v1/chat/completions", "/e/1-0/v1/responses", "/e/1-0/v1/messages", "/e/1-1/v1/models", "/", "*"]
    odd = [b"\x00", b"\xff\xfe", b"{}", b"[]", b'"x"', b"1e999", b"null", b"[" * 300, b'{"messages":[{}]}', b"\r\n\r\n"]
    served = keyed = 0
    threads = threading.active_count()
    for number in range(10_000):
        kind, body = chance.randrange(8), whole
        has_key = chance.random() < 0.3
        if kind == 0:
            body = chance.choice(odd)
        elif kind == 1:
            at = chance.randrange(len(whole))
            body = whole[:at] + chance.randbytes(chance.randrange(1, 9)) + whole[at + 1 :]
        elif kind == 2:
            values = [None, 1, -1, 1e300, True, "x", [], {}, [[]], [{}], {"a": {}}]
            names = ["messages", "tools", "n", "stop", "stream", "max_tokens", "input", "system", "response_format"]
            body = json.dumps({**BODY, chance.choice(names): chance.choice(values)}).encode()
        method = chance.choice(["POST", "POST", "POST", "GET", "PUT", "OPTIONS", "\x7f", "POST POST"])
        length = len(body) if kind != 3 else chance.choice(["-1", "1e3", "", "9" * 30, len(body) - 1])
        head = f"{method} {chance.choice(paths)} {chance.choice(['HTTP/1.1', 'HTTP/1.1', 'HTTP/9.9', ''])}\r\n"
        if kind != 4:
            head += f"Host: 127.0.0.1:{owner.endpoint.port}\r\n"
        if has_key:
            head += f"Authorization: Bearer {owner.key}\r\n"
        elif chance.random() < 0.5:
            head += f"Authorization: Bearer {owner.key[:-1]}x\r\n"
        if kind == 5:
            head += "".join(f"X-{i}: {'y' * chance.randrange(300)}\r\n" for i in range(chance.choice([5, 120])))
        if kind == 6:
            head += "Transfer-Encoding: chunked\r\n"
        raw = f"{head}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode("latin-1", "replace") + body
        if kind == 7:
            raw = chance.choice([raw[: chance.randrange(len(raw))], chance.randbytes(200)])
        before = len(owner.seen)
        with socket.create_connection(("127.0.0.1", owner.endpoint.port), timeout=10) as client:
            answer = b""
            with suppress(OSError):  # closed with a body unread
                client.sendall(raw)
                client.shutdown(socket.SHUT_WR)
                while part := client.recv(65536):
                    answer += part
        served += answer.startswith(b"HTTP/1.1 200")
        keyed += has_key
        if not has_key:
            assert len(owner.seen) == before and not answer.startswith(b"HTTP/1.1 200"), raw
        assert b"Traceback" not in answer and not answer.startswith(b"HTTP/1.1 500"), (number, raw, answer)
    assert keyed > 2500 and not caplog.records
    # whoever half-closed its connection was gone: what counts is that it still serves, and holds no thread
    assert text_of(owner.ask()[1]).startswith("answer")
    end = time.monotonic() + 5
    while threading.active_count() > threads + 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() <= threads + 2
