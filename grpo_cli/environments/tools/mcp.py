"""Tools of MCP servers: a client of the standard library, over the pipes of a process or over HTTP, and its tools as `Tool`s.

How this works. `ToolServer` speaks the part of the Model Context Protocol that tools need: `initialize`, `tools/list` in pages and
`tools/call`. A process gets lines of JSON; an address gets posts, whose answer is JSON or a stream of events. What the
model did wrong comes back as a result, marked as an error. A server that dies, is silent or does not keep to the protocol raises
`ToolServerFailed`: its episode has no verdict, since no action is to blame. Servers see no variable but PATH, LANG, a HOME
of their own, and those that the recipe names.
"""

from __future__ import annotations

import fnmatch
import http.client
import json
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from grpo_cli.environments.tools.world import BadCall, Tool, ToolServerFailed
from grpo_verifiers.kinds.functions.conventions import BadFunction
from grpo_verifiers.names import near_or_known

VERSION = "2025-06-18"
TIMEOUT_S = 30.0
"""Seconds for one answer."""
LONGEST = 8192
"""Characters of a result; more is cut, with a note for the model."""
LARGEST = 4 * 2**20
"""Bytes of an answer."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of tools that the endpoints of models take."""


class ToolServer:
    """One server: a process of its own, or an address."""

    def __init__(
        self,
        command: Sequence[str] = (),
        url: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        folder: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.command, self.url, self.timeout_s = list(command), url, timeout_s
        self.headers, self.variables, self.folder = dict(headers or {}), dict(variables or {}), folder
        self.secrets = [
            one for value in (*self.headers.values(), *self.variables.values()) for one in {value, value.split()[-1]}
        ]
        self._number, self._session = 0, ""
        self._process: subprocess.Popen[bytes] | None = None
        self._read, self._is_open = b"", False

    @classmethod
    def at(cls, url: str) -> ToolServer:
        """The server at an address."""
        return cls(url=url)

    @property
    def name(self) -> str:
        """The server for messages; its headers are not shown."""
        return self.url or " ".join(self.command)

    def tools(self) -> list[dict[str, Any]]:
        """What it offers: `name`, `description` and `inputSchema` of each tool.

        Raises:
            ToolServerFailed: it does not answer as the protocol has it.
        """
        found, cursor = list[dict[str, Any]](), None
        for _ in range(100):
            page = self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            listed = page.get("tools")
            if not isinstance(listed, list) or not all(isinstance(one, dict) and one.get("name") for one in listed):
                raise ToolServerFailed(f"`{self.name}` lists no tools")
            found += listed
            cursor = page.get("nextCursor")
            if cursor is None:
                return found
        raise ToolServerFailed(f"`{self.name}` lists tools without an end")

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a call. What the server refuses (an unknown tool, arguments that do not fit) is a result marked as an error.

        Raises:
            ToolServerFailed: it does not answer as the protocol has it.
        """
        return self._ask("tools/call", {"name": tool, "arguments": dict(arguments)}, refusal_is_result=True)

    def close(self) -> None:
        """End its process."""
        process, self._process, self._is_open = self._process, None, False
        if process is not None:
            _end(process)

    def _ask(self, method: str, params: Mapping[str, Any], *, refusal_is_result: bool = False) -> dict[str, Any]:
        if not self._is_open:
            self._open()
        try:
            answer = self._exchange(method, params)
        except ToolServerFailed:
            self.close()
            raise
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict):
            said = str(error.get("message", "refused"))
            if not refusal_is_result:
                raise ToolServerFailed(f"`{self.name}` refused `{method}`: {said[:200]}")
            return {"content": [{"type": "text", "text": said}], "isError": True}
        if not isinstance(result, dict):
            raise ToolServerFailed(f"`{self.name}` answered `{method}` with neither a result nor an error")
        return result

    def _open(self) -> None:
        self._session, self._read = "", b""
        if not self.url:
            self._start()
        client = {"name": "grpo", "version": "1"}
        opening = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
        try:
            answer = self._exchange("initialize", opening)
            if not isinstance(answer.get("result"), dict):
                raise ToolServerFailed(f"`{self.name}` refused to begin: {str(answer.get('error'))[:200]}")
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except ToolServerFailed:
            self.close()
            raise
        self._is_open = True

    def _start(self) -> None:
        home = tempfile.mkdtemp(prefix="grpo-server-")
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self.folder or home,
                env={**kept, "HOME": home, **self.variables},
            )
        except OSError as err:
            shutil.rmtree(home, ignore_errors=True)
            raise ToolServerFailed(f"`{self.name}` cannot be started: {err}") from err
        weakref.finalize(self._process, shutil.rmtree, home, ignore_errors=True)

    def _exchange(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._number += 1
        found = self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)})
        deadline = time.monotonic() + self.timeout_s
        for answer in found if found is not None else self._lines(deadline):
            # a server may send news, and ask for what is not offered here
            if isinstance(answer, dict) and "method" in answer and "id" in answer:
                refusal = {"code": -32601, "message": "not supported"}
                self._send({"jsonrpc": "2.0", "id": answer["id"], "error": refusal})
            elif isinstance(answer, dict) and answer.get("id") == self._number:
                return answer
        raise ToolServerFailed(f"`{self.name}` did not answer `{method}`")

    def _send(self, message: Mapping[str, Any]) -> list[Any] | None:
        """Sends a message; the answers that came with it, or None where they are to be read."""
        body = json.dumps(message).encode()
        if self.url:
            return self._post(body)
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(body + b"\n")
            self._process.stdin.flush()
        except OSError as err:
            raise ToolServerFailed(f"`{self.name}` has ended") from err
        return None

    def _lines(self, deadline: float) -> Iterator[Any]:
        """What a process writes, until the deadline."""
        assert self._process is not None and self._process.stdout is not None
        file = self._process.stdout.fileno()
        with selectors.DefaultSelector() as look:
            look.register(file, selectors.EVENT_READ)
            while True:
                line, end, rest = self._read.partition(b"\n")
                if end:
                    self._read = rest
                    with suppress(ValueError):  # a line for people
                        yield json.loads(line)
                    continue
                left = deadline - time.monotonic()
                if left <= 0 or not look.select(left):
                    raise ToolServerFailed(f"`{self.name}` did not answer within {self.timeout_s:g} s")
                part = os.read(file, 65536)
                if not part or len(self._read) > LARGEST:
                    raise ToolServerFailed(f"`{self.name}` has ended" if not part else f"`{self.name}` writes too much")
                self._read += part

    def _post(self, body: bytes) -> list[Any]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.timeout_s)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self.headers}
        if self._session:
            headers |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": VERSION}
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            raw = reply.read(LARGEST)
        except (OSError, http.client.HTTPException) as err:
            raise ToolServerFailed(f"`{self.name}` did not answer: {type(err).__name__}") from err
        finally:
            connection.close()
        if reply.status >= 400:
            raise ToolServerFailed(f"`{self.name}` answered with status {reply.status}")
        self._session = reply.headers.get("Mcp-Session-Id", self._session)
        text, parts_of = raw.decode("utf-8", "replace"), [raw.decode("utf-8", "replace")]
        if "event-stream" in reply.headers.get("Content-Type", ""):
            events = re.split(r"\r?\n\r?\n", text)
            parts_of = ["\n".join(x[5:] for x in event.splitlines() if x.startswith("data:")) for event in events]
        found = list[Any]()
        for part in parts_of:
            with suppress(ValueError):
                found.append(json.loads(part))
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tool_text(result: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a result is an error, and its text: its parts, or its `structuredContent`."""
    texts = list[str]()
    content = result.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            texts.append(
                str(part["text"]) if part.get("type") == "text" and "text" in part else f"[{part.get('type')}]"
            )
    if not texts and result.get("structuredContent") is not None:
        texts = [json.dumps(result["structuredContent"], ensure_ascii=False)]
    text = "\n".join(texts)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text) - LONGEST:,} characters more)"
    return bool(result.get("isError")), text


class _Opened:
    """The servers of one episode, or of one worker: started when first called, ended when nobody holds this."""

    def __init__(self, servers: Mapping[str, Mapping[str, Any]], listed: Mapping[str, Any], step_s: float) -> None:
        self._specs, self._listed, self._step_s = servers, listed, step_s
        self._open: dict[str, ToolServer] = {}
        self._ends = 0.0
        weakref.finalize(self, _close_all, self._open)

    def begin(self) -> None:
        """A turn begins, whose calls have `step_s` seconds together."""
        self._ends = time.monotonic() + self._step_s

    def call(self, name: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """The text of a result.

        Raises:
            BadCall: the server calls it an error.
            ToolServerFailed: it did not answer, or offers other tools than when the run began.
        """
        server = self._open.get(name)
        if server is None:
            server = self._open[name] = made(self._specs[name], self._step_s)
            if server.tools() != self._listed[name]:
                raise ToolServerFailed(f"`{name}` offers other tools than when it was asked first")
        server.timeout_s = max(0.1, self._ends - time.monotonic())
        is_error, text = tool_text(server.call(tool, arguments))
        for secret in server.secrets:
            text = text.replace(secret, "***")
        if is_error:
            raise BadCall(text)
        return text


def _close_all(servers: dict[str, ToolServer]) -> None:
    for server in servers.values():
        server.close()


def made(spec: Mapping[str, Any], timeout_s: float) -> ToolServer:
    """The server that a recipe's `environment.mcp` describes, not started.

    Raises:
        BadFunction: a variable that it names is not set.
    """
    missing = [name for name in (*spec["env"], *spec["header_env"].values()) if name not in os.environ]
    if missing:
        raise BadFunction(f"the environment variable `{missing[0]}` is not set")
    headers = {key: os.environ[name] for key, name in spec["header_env"].items()}
    variables = {name: os.environ[name] for name in spec["env"]}
    return ToolServer(
        spec["command"], spec["url"], headers=headers, variables=variables, folder=spec["folder"], timeout_s=timeout_s
    )


class ServerTools:
    """The tools of a recipe's servers, listed once; `of_episode` makes those that an episode calls."""

    def __init__(
        self, servers: Mapping[str, Mapping[str, Any]], allow: Sequence[str], scope: str, step_s: float
    ) -> None:
        """
        Raises:
            BadFunction: a server does not answer, a pattern allows nothing, or a name is taken or too long.
        """
        self._servers, self._step_s = servers, step_s
        self._listed: dict[str, list[dict[str, Any]]] = {}
        for name, spec in servers.items():
            server = made(spec, TIMEOUT_S)
            try:
                self._listed[name] = server.tools()
            except ToolServerFailed as err:
                raise BadFunction(f"the server `{name}`: {err}") from err
            finally:
                server.close()
        every = {f"{name}.{tool['name']}": (name, tool) for name in servers for tool in self._listed[name]}
        for pattern in allow:
            if not fnmatch.filter(every, pattern):
                raise BadFunction(f"`allow` names `{pattern}`, which no server offers{near_or_known(pattern, every)}")
        self._tools: dict[str, tuple[str, str, dict[str, Any]]] = {}
        for full, (name, tool) in every.items():
            if allow and not any(fnmatch.fnmatchcase(full, pattern) for pattern in allow):
                continue
            shown = full.replace(".", "_")
            if not NAME.fullmatch(shown) or shown in self._tools:
                why = (
                    "stands there twice"
                    if shown in self._tools
                    else "is no name of at most 64 letters, digits, `_` and `-`"
                )
                raise BadFunction(f"the tool `{shown}` {why}: leave it out by `allow`")
            function = {"name": shown, "description": tool.get("description") or "", "parameters": tool["inputSchema"]}
            self._tools[shown] = (name, tool["name"], {"type": "function", "function": function})
        self._shared = _Opened(servers, self._listed, step_s) if scope == "run" else None

    def of_episode(self) -> tuple[dict[str, Tool], Callable[[], None]]:
        """The tools of an episode by their names, and what is called when one of its turns begins."""
        opened = self._shared or _Opened(self._servers, self._listed, self._step_s)

        def tool(name: str, raw: str, schema: Mapping[str, Any]) -> Tool:
            return Tool(lambda **given: opened.call(name, raw, given), schema)

        return {shown: tool(*one) for shown, one in self._tools.items()}, opened.begin


def joined(tools: Mapping[str, Tool], servers: ServerTools | None) -> tuple[dict[str, Tool], Callable[[], None]]:
    """An episode's tools with those of `ServerTools`, and what is called as one of its turns begins.

    Raises:
        BadFunction: two have the same name.
    """
    if servers is None:
        return dict(tools), lambda: None
    others, begin = servers.of_episode()
    if same := tools.keys() & others.keys():
        raise BadFunction(f"two tools are called `{min(same)}`")
    return {**tools, **others}, begin
