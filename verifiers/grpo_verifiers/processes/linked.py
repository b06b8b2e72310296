"""A process started by exec, connected by a socket: handshake, numbered requests, deadlines, and its end.

How this works: one thread that never ends starts the process with one end of a socket pair. `greet` waits until it is
ready, `ask` sends a question under the next number, and `receive` returns the answer, which must carry that number; one
that is out of step is ended. `close` hangs up, which ends the process, and kills it after a grace. Starting one never
forks the caller (`subprocess` with no pre-exec hook uses vfork and exec).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from grpo_verifiers.processes import wire

PLAIN_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": "0",  # the same hash seed in all: a verdict must not depend on the process
}
"""Environment variables of every process."""
_LONGEST_LINE = 4000


class ProcessFailed(RuntimeError):
    """The process died, hung up or did not answer. The text it judged is not to blame."""


class ProcessSilent(ProcessFailed):
    """No answer within the time allowed."""


class ProcessRefused(ProcessFailed):
    """It started, and sent the reason why it cannot serve."""

    def __init__(self, why: Any) -> None:
        super().__init__(str(why))
        self.why = why


class LinkedProcess:
    """A running process that answers questions. Only one thread at a time may use it; `close` may be called from any.

    `command` makes the command line from the number of the descriptor that is its end of the link; lines it writes to its
    stderr go to `on_print`, which is called from a thread of its own. It answers with JSON of at most `largest` bytes.
    """

    name = "the process"

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        *,
        cwd: str | None = None,
        output: int | None = None,
        on_print: Callable[[str], None] | None = None,
        largest: int = wire.LARGEST,
    ) -> None:
        self._asked = 0  # the number of the last question; an answer must carry it
        ours, theirs = socket.socketpair()
        try:
            self.process = _started(
                lambda: subprocess.Popen(
                    command(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    env={**environment},
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output if on_print is None else subprocess.PIPE,
                    start_new_session=True,
                )
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = wire.Channel(ours, largest)
        self._reader: threading.Thread | None = None
        stream = self.process.stderr
        if on_print is not None and stream is not None:

            def pass_on() -> None:
                with stream, contextlib.suppress(ValueError, OSError):
                    for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
                        on_print(line.decode("utf-8", "replace").rstrip("\r\n"))

            self._reader = threading.Thread(target=pass_on, name="grpo-prints", daemon=True)
            self._reader.start()

    def greet(self, timeout_s: float, opening: bytes | None = None) -> Any:
        """Send `opening` and return the process's answer when it is ready. A process that does not become ready is
        ended.

        Raises:
            ProcessRefused: it cannot serve, and sent why.
            ProcessSilent, ProcessFailed: it was not ready in time, or ended.
        """
        try:
            if opening is not None:
                self._send(opening)
            reply = self.receive(timeout_s)
            if "ready" not in reply:
                raise ProcessRefused(reply.get("failed"))
        except BaseException:
            self.close()
            raise
        return reply["ready"]

    def ask(self, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        """Send a request with open files, under the next number; `receive` returns the answer."""
        self._asked += 1
        self.tell({**message, "id": self._asked}, files)

    def tell(self, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        """Send a message that gets no answer.

        Raises:
            ProcessFailed: the process is gone.
        """
        self._send(json.dumps(message).encode(), files)

    def _send(self, payload: bytes, files: Sequence[int] = ()) -> None:
        try:
            self._channel.send(payload, files)
        except OSError as err:
            raise ProcessFailed(f"{self.name} is gone: {err}") from err

    def receive(self, timeout_s: float, look: Callable[[], None] | None = None) -> dict[str, Any]:
        """The answer to the last request; `look` is called repeatedly while waiting.

        Raises:
            ProcessSilent: none came in time.
            ProcessFailed: the process is gone, or out of step: its answer is to another question. The process is ended then.
        """
        try:
            data = self._channel.receive(timeout_s, look)
        except wire.PeerSilent as err:
            raise ProcessSilent(str(err)) from err
        except wire.PeerGone as err:
            raise ProcessFailed(f"{self.name} died") from err
        try:
            answer = json.loads(data)
            in_step = type(answer) is dict and answer.get("id") == self._asked
        except (ValueError, RecursionError):
            in_step = False
        if not in_step:
            self.close()
            raise ProcessFailed(f"{self.name} is out of step")
        return dict(answer)

    @property
    def is_open(self) -> bool:
        """Whether it can take requests; False after it was closed or found to be dead."""
        return not self._channel.is_closed

    def close(self, grace_s: float = 0.2) -> None:
        """Hang up, which ends the process and all that it started; kill it where that takes longer than `grace_s` seconds."""
        self._channel.close()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        reader, self._reader = self._reader, None
        if reader is not None and reader is not threading.current_thread():
            reader.join(timeout=1.0)  # the last lines; what outlives the process may hold the pipe open


def end_with(owner: object, end: Callable[..., None], *arguments: object) -> weakref.finalize[Any, Any]:
    """Have `end(*arguments)` called when `owner` is gone or this process ends, once, and never in a forked copy of it."""
    pid = os.getpid()
    return weakref.finalize(owner, lambda: end(*arguments) if os.getpid() == pid else None)


# PR_SET_PDEATHSIG fires when the *thread* that started a process ends, so one thread that never ends starts them all.

_Start = tuple[Callable[[], "subprocess.Popen[bytes]"], Future["subprocess.Popen[bytes]"]]
_starter: dict[str, queue.SimpleQueue[_Start]] = {}
os.register_at_fork(after_in_child=_starter.clear)  # a forked copy has no such thread


def _started(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """The process, which lives as long as this one."""
    future: Future[subprocess.Popen[bytes]] = Future()
    requests: queue.SimpleQueue[_Start] = queue.SimpleQueue()

    def start_for_ever() -> None:
        while True:
            begin, begun = requests.get()
            try:
                begun.set_result(begin())
            except BaseException as err:  # noqa: BLE001 - handed to the thread that asked
                begun.set_exception(err)

    # `setdefault` is atomic; a lock might be held by another thread when this process is forked
    if _starter.setdefault("requests", requests) is requests:
        threading.Thread(target=start_for_ever, name="grpo-spawn", daemon=True).start()
    _starter["requests"].put((start, future))
    return future.result()
