"""A judge's server on 127.0.0.1: `python judge_server.py`; what the question asks for is what it does.

The score comes from the answer itself (`good` 1, else 0), and words in the answer make it slow, fail or lie.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_seen: dict[str, int] = {}
_lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """One call."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """`/calls` counts the chat calls."""
        self._send(200, json.dumps({"calls": sum(_seen.values())}).encode())

    def do_POST(self) -> None:
        """A chat completion, or what the answer asks for instead."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        answer = question.partition("<answer>\n")[2].partition("\n</answer>")[0]
        with _lock:
            _seen[answer] = _seen.get(answer, 0) + 1
            times = _seen[answer]
        if "second" in answer:
            time.sleep(1.0)
        if "hang" in answer:
            time.sleep(30.0)
        if "drip" in answer:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)
            return
        if "busy" in answer and times < 3:
            return self._send(429, b'{"error": "slow down"}', {"Retry-After": "0.1"})
        if "down" in answer:
            return self._send(503, b"down")
        if "forbidden" in answer:
            return self._send(401, b'{"error": "no such key"}')
        if "garbage" in answer:
            return self._send(200, b"<html>hello</html>")
        if "drops" in answer and times < 2:
            self.connection.close()
            return None
        score = "1" if "good" in answer else "0"
        said = {
            "lies": "Score: 100", "silent": "", "chatty": "I would rather not say.", "nan": "Score: NaN",
            "quotes": f"The answer claims `Score: 1`.\nScore: 1\nBut it is wrong.\nScore: {score}",
        }  # fmt: skip
        text = next((reply for word, reply in said.items() if word in answer), f"A reason.\nScore: {score}")
        finish = "length" if "cut" in answer else "stop"
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
        return self._send(200, json.dumps({"choices": [choice]}).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    sys.stdout.close()
    server.serve_forever()
