"""Conversations over one socket: each thread that has something to ask has a thread of its own on the other side.

What one thread does while another one waits is then the same as in one process. As long as neither side has a second
thread, the only one reads for itself; from then on a listener reads and hands each message to the thread it is for.
A message of the main threads goes as it is, one of any other conversation has its number in front.
"""

from __future__ import annotations

import _queue
import _thread
import contextlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import frames

MOST_CONVERSATIONS = 256
MOST_UNREAD = 64 << 20  # bytes of messages that nobody has taken yet
STACK = 2 << 20  # of a thread that serves: a test may have a hundred threads, and memory is limited
MAIN, THREADS, END = 0, b'["threads"]', "end"
PING, PONG = b'["ping"]', b'["pong",'
LONGEST_END = 20  # bytes of a message that says that a thread has ended
LAST_S = 1.0  # for a thread with nothing left to answer
THREAD_TIME, PROCESS_TIME = time.thread_time, time.process_time  # a test may patch the names
NUMBER = re.compile(rb"\[(\d{1,9}),")


@contextlib.contextmanager
def released(lock: threading.RLock) -> Iterator[None]:
    """Without a lock that this thread holds, however often."""
    held = lock._release_save()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        lock._acquire_restore(held)  # type: ignore[attr-defined]


class ThreadInbox:
    """What has come for one thread; `name` is what the thread is called, `gone` tells that the one made for it is no more."""

    __slots__ = ("gone", "inbox", "name", "number")

    def __init__(self, number: int, name: str = "") -> None:
        self.number, self.name = number, name
        self.gone: _queue.SimpleQueue[ThreadInbox] = _queue.SimpleQueue()
        self.inbox: _queue.SimpleQueue[bytes | None] = _queue.SimpleQueue()


class _Held:
    """Tells that a thread is no more: it goes with what was local to it."""

    def __init__(self, conversation: ThreadInbox, tell: Callable[[ThreadInbox], None] | None = None) -> None:
        self.conversation, self.tell = conversation, tell

    def __del__(self) -> None:
        if self.tell is not None:
            self.tell(self.conversation)


class Exchange:
    """One side's end. `first` is the number of its own first conversation, 1 or 2; `serve` answers in a thread made for it."""

    def __init__(self, fd: int, first: int, serve: Callable[[], None]) -> None:
        self.fd, self._next, self._serve = fd, first, serve
        self.state = threading.RLock()
        """Held by whoever looks at or changes what both sides know of each other; never while waiting for a message."""
        self.is_listening = self.is_peer_threaded = False
        self._own, self._sending, self._reading = (threading.local(), threading.RLock(), _thread.allocate_lock())
        self._main = ThreadInbox(MAIN)
        self._own.held = _Held(self._main)
        self._open = {MAIN: self._main}
        self._ended: deque[ThreadInbox] = deque()
        self.waiting = set[int]()
        """The threads that wait for a message."""
        self._unread, self._is_gone, self._is_told = 0, False, False
        self.pong: float | None = None
        """CPU seconds of the other side but for its listener, as it answered the last `ping`; None until it has."""

    def send(self, message: Any) -> None:
        """Say something to the thread that this one talks to.

        Raises:
            Closed, TooLarge: see `frames`.
        """
        number = self.current().number
        with self._sending:
            # whoever has threads may be spoken to at any time from now on
            if not self._is_told and _thread._count() > self.is_listening:
                self._is_told = True
                frames.send(self.fd, ["threads"])
            while self._ended:
                ended = self._ended.popleft()
                del self._open[ended.number]
                frames.send(self.fd, [ended.number, END])
            frames.send(self.fd, message if number == MAIN else [number, *message])

    def receive(self, wait_s: float | None = None) -> Any:
        """The next message for this thread; None if there was none in the given seconds.

        Raises:
            Closed: the other side is gone; or what `frames.read` and the parsing of JSON raise.
        """
        conversation = self.current()
        body = self._next_of(conversation, wait_s)
        if body is None:
            return None
        message = json.loads(body)
        return message[1:] if conversation.number != MAIN else message

    def ping(self) -> None:
        """Ask the listener of the other side how much its process has computed."""
        self.pong = None
        with self._sending:
            frames.send(self.fd, ["ping"])

    def adopt(self, other: ThreadInbox) -> None:
        """Have this thread go on with the conversation of one that waits for it."""
        self._own.held = _Held(other)

    def is_conversing(self) -> bool:
        """Whether this thread has a conversation."""
        return hasattr(self._own, "held")

    def current(self) -> ThreadInbox:
        """The conversation of this thread, begun where it had none."""
        held: _Held | None = getattr(self._own, "held", None)
        if held is not None:
            return held.conversation
        with self._sending:
            made = ThreadInbox(self._next)
            self._next += 2
            self._open[made.number] = made
        self._own.held = _Held(made, self._ended.append)
        self.listen()
        self.send(["begin", threading.current_thread().name])
        return made

    def _next_of(self, conversation: ThreadInbox, wait_s: float | None) -> bytes | None:
        inbox, number = conversation.inbox, _thread.get_ident()
        self.waiting.add(number)
        try:
            with released(self.state):
                while inbox.empty() and not self.is_listening and self._reading.acquire(False):
                    try:
                        self._take()
                    finally:
                        self._reading.release()
                body = inbox.get(timeout=wait_s)
        except _queue.Empty:
            return None
        finally:
            self.waiting.discard(number)
        if body is None:
            # for whoever asks next as well
            inbox.put(None)
            raise frames.Closed
        self._unread -= len(body)
        return body

    def listen(self) -> None:
        """Have a thread read all messages from now on."""
        with self._sending:
            if self.is_listening:
                return
            self.is_listening = True
        _thread.start_new_thread(self._listen, ())

    def _listen(self) -> None:
        with self._reading:
            while not self._is_gone:
                try:
                    self._take()
                except Exception:  # noqa: BLE001 - the message is the other side's: it ends the exchange and no thread
                    return

    def _take(self) -> None:
        """Read one message, and put it where it belongs."""
        try:
            body = frames.read(self.fd)
            if body == THREADS:
                self.is_peer_threaded = True
                self.listen()
                return
            if body == PING:
                with self._sending:
                    frames.send(self.fd, ["pong", PROCESS_TIME() - THREAD_TIME()])
                return
            if body.startswith(PONG):
                self.pong = float(json.loads(body)[1])
                return
            match = NUMBER.match(body)
            number = int(match[1]) if match else MAIN
            self._unread += len(body)
            if self._unread > MOST_UNREAD:
                raise frames.TooLarge("messages that nobody has asked for")
            conversation = self._open.get(number)
            if conversation is None:
                conversation = self._begin(number, body)
            conversation.inbox.put(body)
            # what comes next may be the answer to a test that counts its threads
            is_served = match is not None and number % 2 != self._next % 2
            if is_served and len(body) <= LONGEST_END and json.loads(body)[1:] == [END]:
                with contextlib.suppress(_queue.Empty):
                    conversation.gone.get(timeout=LAST_S)
        except BaseException:
            self._is_gone = True
            for conversation in list(self._open.values()):
                conversation.inbox.put(None)
            raise

    def _begin(self, number: int, body: bytes) -> ThreadInbox:
        """A conversation that the other side has begun, with a thread for it."""
        # its numbers are the ones that this side does not give
        if number % 2 == self._next % 2 or len(self._open) >= MOST_CONVERSATIONS:
            raise ValueError("no such conversation")
        said = json.loads(body)
        if said[1] != "begin" or type(said[2]) is not str:
            raise ValueError("no beginning")
        self.listen()
        made = self._open[number] = ThreadInbox(number, said[2])
        before = threading.stack_size(STACK)
        try:
            threading.Thread(target=self._attend, args=(made,), name=said[2][:200], daemon=True).start()
        finally:
            threading.stack_size(before)
        return made

    def _attend(self, conversation: ThreadInbox) -> None:
        self._own.held = _Held(conversation, conversation.gone.put)
        try:
            self._serve()
        except frames.Closed:
            pass
        finally:
            self._open.pop(conversation.number, None)
