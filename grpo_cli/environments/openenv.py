"""Environments of OpenEnv: a class in the worker, or a server that is asked over a WebSocket. Either is an environment of the protocol.

How this works. Both forms answer `reset` and `step` with an observation, a reward or none, and `done`, as plain data. A turn of the model
is the value of the action's only field, or a JSON object where it has several; the first observation then shows the schema. What
does not fit the schema is answered with the reason and is not a valid action. The outcome is the sum of the rewards. An
episode whose every reward is None has no verdict. The package is imported only for a class; the client of a server is a
few lines of RFC 6455.
"""

from __future__ import annotations

import base64
import http.client
import inspect
import json
import os
import random
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from grpo_cli.environments.step import awaited
from grpo_cli.environments.tools.world import ToolServerFailed
from grpo_verifiers.kinds.functions.conventions import BadFunction, find
from grpo_verifiers.kinds.functions.value import BadReturn

TIMEOUT_S = 10.0
LARGEST = 4 * 2**20
OWN = ("done", "reward", "metadata")
"""Fields of observations and actions that are no part of what is said."""
READS: dict[str, Callable[[str], Any]] = {"integer": int, "number": float, "string": str}


class InvalidAction(Exception):
    """An action that does not fit the schema; the message is for the model."""


class OpenEnvWorld:
    """One episode at a backend, which has `schema`, `reset`, `step` and `close`."""

    def __init__(self, backend: _OfClass | _OfServer) -> None:
        self.backend, self.earned, self.paid = backend, 0.0, False
        self.fields = fields_of(backend.schema)

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """The first observation; where an action has several fields, with their schema."""
        self.chance = random.Random(seed)
        first = _shown(self._took(self.backend.reset({**row, "seed": seed % 2**31})))
        if len(self.fields) == 1:
            return first
        schema = {name: {k: v for k, v in one.items() if k != "title"} for name, one in self.fields.items()}
        return f"{first}\nAnswer with a JSON object of these fields: {json.dumps(schema)}".lstrip("\n")

    def step(self, action: str) -> dict[str, Any]:
        """One turn of the model."""
        try:
            given = self._read(action)
            answer = self.backend.step(given)
        except InvalidAction as err:
            return {"observation": f"error: {err}", "valid": False}
        seen = self._took(answer)
        return {"observation": _shown(seen), "reward": float(answer["reward"] or 0), "done": answer["done"] is True}

    def demonstrate(self) -> str:
        """One of the values that the only field may have.

        Raises:
            ValueError: it is no choice of a few.
        """
        choices = choices_of(self.backend.schema)
        if not choices:
            raise ValueError("its actions are no choice of a few: say `warmup.demonstration`")
        return self.chance.choice(choices)

    def score(self) -> float | None:
        """The sum of the rewards; None where there was none."""
        self.backend.close()
        return self.earned if self.paid else None

    def _took(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        reward = answer.get("reward")
        if reward is not None:
            if not isinstance(reward, int | float):
                raise BadReturn(
                    f"the reward of an observation is a {type(reward).__name__}: a number or None is wanted"
                )
            self.earned, self.paid = self.earned + float(reward), True
        found: Mapping[str, Any] = answer["observation"]
        return found

    def _read(self, action: str) -> dict[str, Any]:
        if len(self.fields) == 1:
            ((name, kind),) = self.fields.items()
            read = READS.get(kind.get("type", ""))
            if read is not None:
                try:
                    return {name: read(action.strip() if read is not str else action)}
                except ValueError:
                    raise InvalidAction(f"`{name}` is {'a whole number' if read is int else 'a number'}") from None
        try:
            found = json.loads(action)
        except (ValueError, RecursionError):
            raise InvalidAction("an action is a JSON object") from None
        if len(self.fields) == 1 and not isinstance(found, dict):
            return {next(iter(self.fields)): found}
        if not isinstance(found, dict):
            raise InvalidAction("an action is a JSON object")
        return found


def fields_of(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of an action, each with its own schema, also where that stands elsewhere."""
    kinds, defined = dict[str, dict[str, Any]](), schema.get("$defs", {})
    for name, one in schema.get("properties", {}).items():
        if name not in OWN:
            kinds[name] = {**defined.get(str(one.get("$ref", "")).rpartition("/")[2], {}), **one}
            kinds[name].pop("$ref", None)
    return kinds


def choices_of(schema: Mapping[str, Any]) -> list[str]:
    """The values of an action with one field that is a choice."""
    fields = list(fields_of(schema).values())
    return [str(one) for one in fields[0].get("enum", ())] if len(fields) == 1 else []


def _shown(seen: Mapping[str, Any]) -> str:
    """What the model sees: the only text, else all fields as JSON."""
    fields = {name: value for name, value in seen.items() if name not in OWN}
    if len(fields) == 1 and isinstance(value := next(iter(fields.values())), str):
        return value
    return json.dumps(fields, ensure_ascii=False) if fields else ""


class _OfClass:
    """An environment object in this process."""

    def __init__(self, make: Callable[..., Any], action: type[Any], options: Mapping[str, Any]) -> None:
        self.env, self.action = make(**options), action
        self.schema = action.model_json_schema()

    def reset(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The first observation; `reset` gets the columns that it names."""
        parameters = inspect.signature(self.env.reset).parameters
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        return _plain(
            awaited(self.env.reset(**{name: one for name, one in given.items() if takes_all or name in parameters}))
        )

    def step(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What an action led to.

        Raises:
            InvalidAction: it does not fit the schema.
        """
        from pydantic import ValidationError

        try:
            action = self.action.model_validate(given)
        except ValidationError as err:
            first = err.errors()[0]
            raise InvalidAction(f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}") from None
        return _plain(awaited(self.env.step(action)))

    def close(self) -> None:
        """End it."""
        with suppress(AttributeError):
            awaited(self.env.close())


def _plain(observation: object) -> dict[str, Any]:
    try:
        seen = observation.model_dump(mode="json")  # type: ignore[attr-defined] # what has none is refused
        return {"observation": seen, "reward": seen.get("reward"), "done": seen["done"]}
    except (AttributeError, KeyError) as err:
        raise BadReturn(
            f"a {type(observation).__name__} was returned, and an observation of OpenEnv is wanted"
        ) from err


class _OfServer:
    """A session of a server: one connection an episode."""

    def __init__(self, url: str, schema: Mapping[str, Any]) -> None:
        self.url, self.schema = url, schema
        self._socket: socket.socket | None = None
        self._read = b""

    def reset(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The first observation of a new session."""
        self._connect()
        return self._ask("reset", given)

    def step(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What an action led to.

        Raises:
            InvalidAction: the server calls it one.
        """
        return self._ask("step", given)

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            with suppress(OSError):
                self._send(json.dumps({"type": "close"}).encode())
            self._socket.close()
            self._socket = None

    def _ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._send(json.dumps({"type": kind, "data": dict(data)}, default=str).encode())
            answer = json.loads(self._receive())
        except (OSError, ValueError) as err:
            raise ToolServerFailed(f"`{self.url}` did not answer `{kind}`: {type(err).__name__}") from err
        found = answer.get("data")
        if answer.get("type") == "error" and isinstance(found, dict):
            if found.get("code") == "VALIDATION_ERROR" and kind == "step":
                first: Mapping[str, Any] = next(iter(found.get("errors") or ()), {})
                place = ".".join(map(str, first.get("loc", ())))
                raise InvalidAction(f"`{place}`: {first.get('msg', found.get('message'))}")
            raise ToolServerFailed(f"`{self.url}` failed at `{kind}`: {str(found.get('message'))[:200]}")
        if not isinstance(found, dict) or not isinstance(found.get("observation"), dict) or "done" not in found:
            raise ToolServerFailed(f"`{self.url}` answered `{kind}` with no observation")
        return found

    def _connect(self) -> None:
        parts = urlsplit(self.url)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {parts.path.rstrip('/')}/ws HTTP/1.1",
            f"Host: {parts.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        try:
            self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), TIMEOUT_S)
            self._socket.sendall("\r\n".join((*lines, "", "")).encode())
            while b"\r\n\r\n" not in self._read:
                self._more()
        except OSError as err:
            raise ToolServerFailed(f"`{self.url}` cannot be reached: {type(err).__name__}") from err
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        status = head.decode("latin-1").splitlines()[0]
        if " 101 " not in status:
            raise ToolServerFailed(f"`{self.url}` takes no WebSocket: {status}")

    def _more(self) -> None:
        assert self._socket is not None
        part = self._socket.recv(65536)
        if not part or len(self._read) > LARGEST:
            raise OSError("the connection ended" if not part else "the message is too long")
        self._read += part

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _send(self, data: bytes, kind: int = 1) -> None:
        assert self._socket is not None
        size, mask = len(data), os.urandom(4)
        head = struct.pack("!BB", 0x80 | kind, 0x80 | size) if size < 126 else b""
        head = head or (struct.pack("!BBH", 0x80 | kind, 0xFE, size) if size < 65536 else b"")
        head = head or struct.pack("!BBQ", 0x80 | kind, 0xFF, size)
        self._socket.sendall(head + mask + bytes(one ^ mask[i % 4] for i, one in enumerate(data)))

    def _receive(self) -> bytes:
        """The next whole message; pings are answered."""
        whole = b""
        while True:
            first, size = self._take(2)
            size &= 0x7F
            if size > 125:
                size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
            if size > LARGEST:
                raise OSError("the message is too long")
            data, kind = self._take(size), first & 0x0F
            if kind == 9:
                self._send(data, 10)
            elif kind == 8:
                raise OSError("the connection ended")
            elif kind < 3:
                whole += data
                if first & 0x80:
                    return whole


def maker(spec: str, options: Mapping[str, Any]) -> tuple[Callable[..., OpenEnvWorld], bool]:
    """What makes the episodes of `MODULE:CLASS` or of the server at an address, and whether it can demonstrate.

    Raises:
        BadFunction: it is not there, or plays by tools.
    """
    if spec.startswith(("http://", "ws://")):
        url = "http" + spec.partition("://")[1] + spec.partition("://")[2].rstrip("/")
        if options:
            raise BadFunction("`environment.options` are for a class: a server was made with its own")
        schema = _schema(url)
        _refuse_tools(schema, f"`environment: {{mcp: {{NAME: {{url: {url}/mcp}}}}}}`")
        return lambda: OpenEnvWorld(_OfServer(url, schema)), bool(choices_of(schema))
    if "://" in spec:
        raise BadFunction(f"`{spec}` is no address: `http://HOST:PORT` or `MODULE:CLASS` is wanted")
    make = find(spec)
    hints = get_type_hints(make.step) if hasattr(make, "step") else {}
    action: Any = hints.get("action")
    if not callable(getattr(action, "model_json_schema", None)):
        raise BadFunction(
            f"`{spec}` is no environment of OpenEnv whose `step(action: …)` names the class of its actions"
        )
    schema = action.model_json_schema()
    _refuse_tools(schema, "its server's `/mcp` under `environment.mcp`")
    return lambda **given: OpenEnvWorld(_OfClass(make, action, given)), bool(choices_of(schema))


def _refuse_tools(schema: Mapping[str, Any], instead: str) -> None:
    if not fields_of(schema):
        raise BadFunction(f"its actions have no field: it plays by tools. Name {instead}, and a verifier")


def _schema(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/schema")
        reply = connection.getresponse()
        found = json.loads(reply.read(LARGEST)) if reply.status == 200 else {}
    except (OSError, ValueError, http.client.HTTPException) as err:
        raise BadFunction(f"`{url}` does not answer: {type(err).__name__}") from err
    finally:
        connection.close()
    schema = found.get("action") if isinstance(found, dict) else None
    if not isinstance(schema, dict):
        raise BadFunction(f"`{url}` has no `/schema` with the form of an action: it is no server of OpenEnv")
    return schema
