"""What the solution says while a thread of the test waits for its answer, or to a thread that serves one of the solution's."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ..exchange import END, released
from ..wire import Parts
from .answers import Answers
from .ends import Connection, Stopped
from .pace import PACE
from .redirecting import Redirects

BRINGING = ("call", "method", "names", "sync", "subclass")
"""Questions that bring the world of the test themselves, or run nothing that could see it."""


class Messages:
    """Sends questions and hears what comes back, each thread in its own conversation."""

    def __init__(self, link: Connection) -> None:
        self.link, self.answers, self.redirects = link, Answers(link), Redirects()

    def reply(self, request: list[Any]) -> Any:
        """The reply to a question, behind the answers to what the solution asks back meanwhile."""
        link = self.link
        changed = link.live.changed() if link.live.entries else None
        if changed:
            link.exchange.send(["live", changed])
        if link.lender.has_files and (folder := link.lender.folder.moved()):
            link.exchange.send(["cwd", folder])
        for name, text in self.redirects.take() if self.redirects.standing else ():
            link.exchange.send(["printed", name, text])
        if request[0] not in BRINGING and (world := link.lender.news()):
            link.exchange.send(["world", world])
        link.exchange.send(request)
        while True:
            message = self._heard()
            if message[0] in ("ok", "raise"):
                if request[0] == "exit":
                    self.redirects.end(request[1]["k"])
                return message
            # only while the test is inside: else what it prints of its expectations would be told
            if message[0] == "redirect" and request[0] == "enter":
                self.redirects.begin(request[1]["k"], message[1])
                continue
            self._answer(message)

    def attend(self) -> None:
        """Serve a thread of the solution until it ends."""
        link = self.link
        try:
            with link.state:
                while (message := self._heard())[0] != END:
                    if message[0] != "begin":
                        with PACE.work():
                            self._answer(message)
        except Stopped:
            return
        except Exception:  # noqa: BLE001 - as with an answer: nothing of what it says from here on is believed
            link.is_dead = True

    def _answer(self, question: Parts) -> None:
        with released(self.link.state):
            said = self.answers.answer(question)
        self.link.exchange.send(said)

    def _heard(self) -> Any:
        """The next message that is no news."""
        link = self.link
        while True:
            message = link.exchange.receive()
            while message[0] == "waits":
                # it waits of its own accord, at most so long: timers and sleeping threads of the test go on
                most = None if message[1] is None else float(message[1])
                with PACE.wait():
                    message = link.exchange.receive(most)
                message = message or link.exchange.receive()
            if message[0] == "out":
                stream = sys.stderr if message[1] == "stderr" else sys.stdout
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.write(str(message[2]))
            elif message[0] == "slept":
                PACE.pass_by(float(message[1]))
            elif message[0] == "files":
                link.lender.take_files(message[1])
            elif message[0] == "cwd":
                if link.lender.has_files:
                    link.lender.folder.follow(message[1])
            elif message[0] == "live":
                link.live.take(message[1])
            elif message[0] != "works":
                return message
