"""A class as OpenEnv has them, without the package, and a server for tests that speaks its protocol: standard library only."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from contextlib import suppress
from typing import Any

CHOICE = {
    "$defs": {"Move": {"enum": ["UP", "DOWN"], "type": "string"}},
    "properties": {"move": {"$ref": "#/$defs/Move"}},
}
TWO = {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}, "metadata": {}}, "required": ["x", "y"]}


def answer(session: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """What a session answers: moves are counted, `DOWN` ends it, and what is no move is refused."""
    kind, data = message["type"], message.get("data", {})
    if kind == "reset":
        session.update(n=0, seed=data.get("seed"))
        return {
            "type": "observation",
            "data": {"observation": {"text": f"seed {data.get('seed')}"}, "reward": None, "done": False},
        }
    move = data.get("move")
    if move == "CRASH":
        return {"type": "error", "data": {"message": "a bug", "code": "EXECUTION_ERROR"}}
    if move not in ("UP", "DOWN", "LONG"):
        errors = [{"loc": ["move"], "msg": "Input should be 'UP' or 'DOWN'"}]
        return {"type": "error", "data": {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors}}
    session["n"] += 1
    text = "x" * 70_000 if move == "LONG" else f"n {session['n']}"
    paid = {"observation": {"text": text}, "reward": 0.5, "done": move == "DOWN"}
    return {"type": "observation", "data": paid}


class Server:
    """A server at a port of its own, with `/schema` and `/ws`; `send` may part messages in frames."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.listener.close()
        for one in self.open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(one)
            threading.Thread(target=self._until_closed, args=(one,), daemon=True).start()

    def _until_closed(self, one: socket.socket) -> None:
        with suppress(OSError):
            self._client(one)

    def _client(self, one: socket.socket) -> None:
        file = one.makefile("rwb")
        first = file.readline().decode()
        headers = {}
        while (line := file.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        if "/schema" in first:
            body = json.dumps({"action": CHOICE, "observation": {}, "state": {}}).encode()
            file.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            file.flush()
            one.close()
            return
        digest = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        file.write(f"{head}Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n".encode())
        file.flush()
        session: dict[str, Any] = {}
        while True:
            kind, data = self._read(file)
            if kind != 1 or json.loads(data)["type"] == "close":
                return
            body = json.dumps(answer(session, json.loads(data))).encode()
            half = len(body) // 2
            # a ping, then the message in two frames
            self._write(file, 0x89, b"are you there")
            self._write(file, 0x01, body[:half])
            self._write(file, 0x80, body[half:])
            pong, said = self._read(file)
            assert (pong, said) == (10, b"are you there")

    @staticmethod
    def _read(file: Any) -> tuple[int, bytes]:
        first, size = file.read(2) or (8, 0x80)
        size &= 0x7F
        size = int.from_bytes(file.read({126: 2, 127: 8}[size]), "big") if size > 125 else size
        mask = file.read(4)
        return first & 15, bytes(b ^ mask[i % 4] for i, b in enumerate(file.read(size)))

    @staticmethod
    def _write(file: Any, first: int, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else bytes([126]) + len(data).to_bytes(2, "big")
        size = size if len(data) < 65536 else bytes([127]) + len(data).to_bytes(8, "big")
        file.write(bytes([first]) + size + data)
        file.flush()


class Observation:
    def __init__(self, text: str, reward: float | None = None, done: bool = False) -> None:
        self.text, self.reward, self.done = text, reward, done

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"text": self.text, "reward": self.reward, "done": self.done, "metadata": {}}


class Action:
    x: int
    y: int

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return TWO

    @classmethod
    def model_validate(cls, given: dict[str, Any]) -> Action:
        made = cls()
        made.x, made.y = given["x"], given["y"]
        return made


class Plane:
    """Pays the sum of an action's fields; never where it is made without pay."""

    def __init__(self, pays: bool = True) -> None:
        self.pays = pays

    def reset(self, seed: int | None = None, number: int = 0) -> Observation:
        return Observation(f"{number}/{seed}")

    async def step(self, action: Action) -> Observation:
        return Observation("moved", float(action.x + action.y) if self.pays else None, done=action.x == 9)


class NoAction(Action):
    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"properties": {"metadata": {}}}


class ToolsAlone(Plane):
    async def step(self, action: NoAction) -> Observation:  # type: ignore[override]
        return Observation("")


class NotOne:
    def step(self, action: str) -> str:
        return action
