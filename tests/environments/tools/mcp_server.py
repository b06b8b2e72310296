"""A server of the Model Context Protocol for tests: standard library only, over pipes, or over HTTP with `--http`, then `--sse` too."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORD = {"type": "object", "properties": {"word": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
TOOLS = {
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"$ref": "#/$defs/n"}},
        "required": ["a", "b"],
    },
    "count": {"type": "object"},
    "hang": WORD,
    "die": WORD,
    "chatter": WORD,
    "long": WORD,
    "seen": WORD,
    "fails": WORD,
}
COUNT = [0]


def call(name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name == "add":
        if given["a"] > 99:
            return {"content": [{"type": "text", "text": "a is above 99"}], "isError": True}
        return {"content": [], "structuredContent": {"sum": given["a"] + given["b"]}}
    if name == "hang":
        time.sleep(60)
    if name == "die":
        os._exit(3)
    COUNT[0] += name == "count"
    texts = {
        "count": str(COUNT[0]),
        "long": "x" * 9000,
        "seen": json.dumps({name: os.environ.get(name, "") for name in ("HOME", "SHOWN_TOKEN", "HIDDEN_TOKEN")}),
    }
    content = [{"type": "text", "text": texts.get(name, "ok")}, {"type": "image", "data": "", "mimeType": "x"}]
    return {"content": content if name != "count" else content[:1], "isError": name == "fails"}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        return None
    found: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        result: dict[str, Any] = {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": {}}
    elif method == "tools/list":
        names = list(TOOLS)
        half = names[:3] if "cursor" not in params else names[3:]
        tools = [{"name": name, "description": f"To {name}.", "inputSchema": TOOLS[name]} for name in half]
        result = {"tools": tools} | ({} if "cursor" in params else {"nextCursor": "more"})
    elif params.get("name") not in TOOLS:
        return found | {"error": {"code": -32602, "message": f"unknown tool {params.get('name')}"}}
    else:
        result = call(params["name"], params["arguments"])
    return found | {"result": result}


class Http(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_first = message.get("method") == "initialize"
        refused = self.headers.get("Authorization") != "Bearer sesame" or (
            not is_first and self.headers.get("Mcp-Session-Id") != "s1"
        )
        found = None if refused else answer(message)
        body = json.dumps(found).encode() if found else b""
        if "--sse" in sys.argv:
            news = json.dumps({"jsonrpc": "2.0", "method": "notifications/message"}).encode()
            body = b"event: message\ndata: " + news + b"\n\ndata: " + body + b"\n\n"
        self.send_response(401 if refused else 200 if found else 202)
        self.send_header("Content-Type", "text/event-stream" if "--sse" in sys.argv else "application/json")
        self.send_header("Mcp-Session-Id", "s1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    if "--http" in sys.argv:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Http)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    print("a line for people", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("params", {}).get("name") == "chatter":
            # news, and a request of its own, before the answer
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}), flush=True)
            print(json.dumps({"jsonrpc": "2.0", "id": "mine", "method": "sampling/createMessage"}), flush=True)
            refusal = json.loads(sys.stdin.readline())
            assert refusal["id"] == "mine" and refusal["error"]["code"] == -32601, refusal
        if (found := answer(message)) is not None:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
