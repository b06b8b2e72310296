"""What of the test's process a call finds in the solution's: patches, seed, environment, streams, files, working folder.

`Surroundings` is the test's side: it adds to a request what differs. `applied` is the solution's side: it holds that for the
time of the request and takes it back. Which of it is looked at is known from the text of the tests, so that most pay nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .exceptions import Unsupported
from .values import Value

PATCHABLE = (
    *((builtins, n) for n in ("input", "print", "open")),
    *((time, n) for n in ("time", "sleep", "monotonic", "perf_counter", "localtime", "strftime", "time_ns")),
    *((random, n) for n in ("random", "randint", "choice", "shuffle", "sample", "uniform", "randrange", "choices")),
    *((os, n) for n in ("getcwd", "getenv", "listdir", "urandom")),
    *((os.path, n) for n in ("exists", "isfile", "getsize")),
)
ORIGINALS = tuple(getattr(module, name) for module, name in PATCHABLE)
OPEN, WORKING, CHANGE = open, os.getcwd, os.chdir  # a test may patch the names
MOST_FILE, MOST_FILES, MOST_PRINTED = 1 << 20, 200, 1 << 20
SCRATCH = "/tmp"


class Surroundings:
    """The test's side: what a request brings along. Which of it is looked at is known from the text of the tests."""

    def __init__(self, *, has_patches: bool, has_files: bool, has_random: bool) -> None:
        self.has_patches, self.has_files, self.has_random = has_patches, has_files, has_random
        self.has_environment, self.state = False, None
        self.first = self.folder = WORKING() if has_files else ""
        if has_random:
            # the same seed once more gives the state that was sent last, while the solution's has gone on since
            for name, original in (("seed", random.seed), ("setstate", random.setstate)):
                setattr(random, name, functools.partial(self._reseed, original))

    def _reseed(self, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        self.state = None
        original(*args, **kwargs)

    def now(self, link: Value) -> dict[str, Any]:
        """What differs from what the solution's process has by itself."""
        extras: dict[str, Any] = {}
        if self.has_patches:
            for (module, name), original in zip(PATCHABLE, ORIGINALS, strict=True):
                found = getattr(module, name)
                if found is not original and getattr(found, "_is_ours", 0) is not True:
                    if not callable(found):
                        raise Unsupported(link, "mock")
                    extras.setdefault("p", {})[f"{module.__name__}:{name}"] = link.number_of(found)
            self.has_environment |= bool(os.environ)
            if self.has_environment:  # also where the last variable was taken back
                extras["e"] = dict(os.environ)
        if self.has_files:
            extras["f"] = read_files()
            if (folder := WORKING()) != self.folder:
                extras["c"] = self.folder = folder
        if self.has_random and (state := random.getstate()) != self.state:
            self.state = state  # type: ignore[assignment]
            extras["s"] = [state[0], list(state[1]), state[2]]
        return extras

    def take(self, extras: dict[str, Any]) -> None:
        """Files that the solution has written, and the folder that it has gone to: the scratch folder or the first one."""
        if not self.has_files:
            return
        write_files({str(k): v for k, v in extras.get("f", {}).items()})
        folder = os.path.realpath(str(extras.get("c", "")))
        if "c" in extras and (folder == self.first or (folder + "/").startswith(SCRATCH + "/")):
            with contextlib.suppress(OSError):
                CHANGE(folder)
                self.folder = WORKING()

    def printed(self, texts: Any) -> None:
        """Print what the solution has printed into the test's streams of this moment."""
        for name, text in texts:
            if name == "warning":
                kind = getattr(builtins, text[0], UserWarning)
                is_kind = isinstance(kind, type) and issubclass(kind, Warning)
                warnings.warn(str(text[1]), kind if is_kind else UserWarning, stacklevel=2)
            elif name in ("stdout", "stderr") and type(text) is str:
                getattr(sys, name).write(text)


@contextlib.contextmanager
def applied(about: dict[str, Any], exports: Any, extras: dict[str, Any]) -> Iterator[None]:
    """The solution's side: the surroundings of a request for its time; what it has changed goes into `extras`."""
    undone = list[tuple[Any, str, Any]]()
    for full, number in about.get("p", {}).items():
        module, _, name = full.partition(":")
        home = __import__(module, fromlist=["x"])
        undone.append((home, name, getattr(home, name)))
        setattr(home, name, lambda *a, _n=number, **k: exports.call_back(_n, "call", a, k))
    if "e" in about:
        os.environ.clear()
        os.environ.update(about["e"])
    if "s" in about:
        random.setstate((about["s"][0], tuple(about["s"][1]), about["s"][2]))
    before, first = None, ""
    if "f" in about:
        had = read_files()
        # an open file of the solution goes on where it was
        write_files(
            {p: text for p, text in about["f"].items() if had.get(p) != text}
            | {p: None for p in had if p not in about["f"]}
        )
        before = read_files()
        with contextlib.suppress(OSError):
            if "c" in about:
                CHANGE(about["c"])
            first = WORKING()
    try:
        yield
    finally:
        for home, name, value in reversed(undone):
            setattr(home, name, value)
        if before is not None:
            after = read_files()
            changed = {p: after.get(p) for p in after.keys() | before.keys() if after.get(p) != before.get(p)}
            if changed:
                extras["f"] = changed
            with contextlib.suppress(OSError):
                if (folder := WORKING()) != first:
                    extras["c"] = folder


class Console:
    """The solution's streams: what it prints goes with the next message, what it reads is asked of the test."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self.ask = ask
        self.streams = dict[str, io.TextIOWrapper]()
        self.warned = list[Any]()

    def take_over(self) -> None:
        """Replace the standard streams, `input` and `warnings.warn`."""
        for name in ("stdout", "stderr"):
            stream = io.TextIOWrapper(io.BytesIO(), "utf-8", "replace", "\n", write_through=True)
            self.streams[name] = stream
            setattr(sys, name, stream)
        sys.stdin = _Asked(self.ask)
        builtins.input = self._input
        warnings.warn = self._warn

    def _input(self, prompt: object = "", /) -> str:
        sys.stdout.write(str(prompt))
        line = self.ask("line")
        if not line:
            raise EOFError("EOF when reading a line")
        return line.removesuffix("\n")

    def _warn(self, message: Value, category: Any = None, *_: object, **__: object) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        found = next((c for c in kind.__mro__ if c.__module__ == "builtins"), UserWarning)
        self.warned.append(["warning", [found.__name__, str(message)]])

    def take(self) -> list[Any]:
        """What has been printed since the last message; without end it fills none."""
        found, self.warned = self.warned, []
        for name, stream in self.streams.items():
            raw: Any = stream.buffer
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
                if data := raw.getvalue():
                    text = data[:MOST_PRINTED].decode("utf-8", "replace")
                    found.append([name, text + ("\n[cut]\n" if len(data) > MOST_PRINTED else "")])
                    raw.seek(0)
                    raw.truncate()
        return found


class _Asked(io.TextIOBase):
    """Standard input, read from the test program's."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask

    def readable(self) -> bool:
        """Always."""
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """One line."""
        return self._ask("line")

    def read(self, size: int | None = -1, /) -> str:
        """All that is left."""
        return self._ask("all")


def read_files() -> dict[str, str]:
    """The small files of the scratch folder, as hexadecimal digits; folders end with a slash."""
    found = dict[str, str]()
    for root, folders, names in os.walk(SCRATCH):
        found |= {os.path.join(root, name) + "/": "" for name in folders}
        for name in names:
            path = os.path.join(root, name)
            with contextlib.suppress(OSError):
                # a link may lead out of the folder, a pipe would never end
                if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= MOST_FILE:
                    with OPEN(path, "rb") as file:
                        found[path] = file.read().hex()
        if len(found) > MOST_FILES:
            break
    return found


def write_files(files: dict[str, Any]) -> None:
    """Write such files, only below the scratch folder; None takes one away."""
    for path, text in sorted(files.items()):
        # `/tmp/../etc` begins with the folder as well
        if os.path.normpath(path) != path.rstrip("/") or not path.startswith(SCRATCH + "/"):
            continue
        with contextlib.suppress(OSError):
            if text is None:
                os.rmdir(path) if path.endswith("/") else os.unlink(path)
            elif path.endswith("/"):
                os.makedirs(path, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with OPEN(path, "wb") as file:
                    file.write(bytes.fromhex(text))
