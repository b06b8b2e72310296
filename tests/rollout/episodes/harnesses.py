"""A program that asks an endpoint for turns, as people write them: standard library only, in each of the three dialects.

Its one argument describes how it behaves, as JSON; it prints what the last turn said.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import threading
import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

BASE, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]


def post(route: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    data = json.dumps({"model": "m", **body}).encode()
    request = urllib.request.Request(f"{BASE}/{route}", data, {"Authorization": f"Bearer {KEY}", **headers})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def ask(dialect: str, messages: list[dict[str, Any]], tokens: int, **headers: str) -> str:
    """The text of the next turn."""
    if dialect == "chat":
        body = post("chat/completions", {"messages": messages, "max_tokens": tokens}, **headers)
        return str(body["choices"][0]["message"]["content"])
    if dialect == "responses":
        body = post("responses", {"input": messages, "max_output_tokens": tokens}, **headers)
        return str(body["output"][0]["content"][0]["text"])
    head = messages[0]["content"] if messages[0]["role"] == "system" else None
    said = {"messages": messages[1:] if head else messages, "max_tokens": tokens}
    body = post("messages", said | ({"system": head} if head else {}), **headers)
    return "".join(part["text"] for part in body["content"])


def hang_up(messages: list[dict[str, Any]], tokens: int) -> None:
    """Ask, and leave before the answer."""
    data = json.dumps({"model": "m", "messages": messages, "max_tokens": tokens}).encode()
    place = urlsplit(BASE)
    client = socket.create_connection((str(place.hostname), int(place.port or 0)))
    head = f"POST {place.path}/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {KEY}\r\n"
    client.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    time.sleep(0.02)
    client.close()


def main() -> None:
    how = json.loads(sys.argv[1])
    given = json.load(sys.stdin)
    chance = random.Random(f"{how['seed']}/{given['number']}")
    dialects = how["dialects"]
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}] if how.get("system") else []
    messages.append({"role": "user", "content": given["question"]})
    said = ""
    for turn in range(how["turns"]):
        draw, dialect, tokens = chance.random(), chance.choice(dialects), how["tokens"]
        if draw < how.get("cancels", 0):
            dialect = "chat"  # the same bytes are sent again below
            hang_up(messages, tokens)
        if draw > 1 - how.get("siblings", 0):
            others = [threading.Thread(target=ask, args=(dialect, messages, tokens)) for _ in range(2)]
            for one in others:
                one.start()
            for one in others:
                one.join()
        marked = {"Idempotency-Key": f"turn{turn}"} if how.get("retries") else {}
        said = ask(dialect, messages, tokens, **marked)
        if how.get("retries"):
            again = ask(dialect, messages, tokens, **marked)
            assert again == said, (again, said)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"And {turn}, {draw:.3f}?"}]
        if chance.random() < how.get("rewrites", 0):  # as harnesses do that turn their calls into text
            at = chance.randrange(len(messages) - 1)
            messages[at] = {**messages[at], "content": f"(in short: {turn})"}
    print("done", file=sys.stderr)
    print(said.strip().splitlines()[-1] if said.strip() else "nothing")


if __name__ == "__main__":
    main()
