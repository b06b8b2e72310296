"""What of the test's process a call finds in the solution's: seed, files, and where its prints go.

`Surroundings` is the test's side: it adds to a request what differs. `applied` is the solution's side: it holds that for the
time of the request. Which of it is looked at is known from the text of the tests, so that most pay nothing. What else a test
may change around the solution (a patched `input`, a variable of the environment, another folder) is refused by `plan`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

OPEN = open  # a test may patch the name
MOST_FILE, MOST_FILES, MOST_PRINTED = 1 << 20, 200, 1 << 20
SCRATCH = "/tmp"


class Surroundings:
    """The test's side: what a request brings along. Which of it is looked at is known from the text of the tests."""

    def __init__(self, *, has_files: bool, has_random: bool) -> None:
        self.has_files, self.has_random, self.state = has_files, has_random, None
        if has_random:
            # the same seed once more gives the state that was sent last, while the solution's has gone on since
            for name, original in (("seed", random.seed), ("setstate", random.setstate)):
                setattr(random, name, functools.partial(self._reseed, original))

    def _reseed(self, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        self.state = None
        original(*args, **kwargs)

    def now(self) -> dict[str, Any]:
        """What differs from what the solution's process has by itself."""
        extras: dict[str, Any] = {"f": read_files()} if self.has_files else {}
        if self.has_random and (state := random.getstate()) != self.state:
            self.state = state  # type: ignore[assignment]
            extras["s"] = [state[0], list(state[1]), state[2]]
        return extras

    def take(self, extras: dict[str, Any]) -> None:
        """Files that the solution has written."""
        if self.has_files:
            write_files({str(k): v for k, v in extras.get("f", {}).items()})

    def printed(self, texts: Any) -> None:
        """Print what the solution has printed into the test's streams of this moment."""
        for name, text in texts:
            if name in ("stdout", "stderr") and type(text) is str:
                getattr(sys, name).write(text)


@contextlib.contextmanager
def applied(about: dict[str, Any], extras: dict[str, Any]) -> Iterator[None]:
    """The solution's side: the surroundings of a request for its time; what it has changed goes into `extras`."""
    if "s" in about:
        random.setstate((about["s"][0], tuple(about["s"][1]), about["s"][2]))
    if "f" not in about:
        yield
        return
    had, given = read_files(), about["f"]
    # an open file of the solution goes on where it was
    write_files({p: t for p, t in given.items() if had.get(p) != t} | {p: None for p in had if p not in given})
    before = read_files()
    try:
        yield
    finally:
        after = read_files()
        changed = {p: after.get(p) for p in after.keys() | before.keys() if after.get(p) != before.get(p)}
        if changed:
            extras["f"] = changed


class Console:
    """The solution's streams: what it prints goes with the next message, and there is nothing to read."""

    def __init__(self) -> None:
        self.streams = {
            name: io.TextIOWrapper(io.BytesIO(), "utf-8", "replace", "\n", write_through=True)
            for name in ("stdout", "stderr")
        }
        self.input = io.StringIO()

    def take(self) -> list[Any]:
        """What has been printed since the last message; without end it fills none."""
        found = list[Any]()
        for name, stream in self.streams.items():
            raw: Any = stream.buffer
            with contextlib.suppress(ValueError, OSError):
                if raw.tell():
                    data = raw.getvalue()
                    text = data[:MOST_PRINTED].decode("utf-8", "replace")
                    found.append([name, text + ("\n[cut]\n" if len(data) > MOST_PRINTED else "")])
                    raw.seek(0)
                    raw.truncate()
        return found


CONSOLE = Console()
"""Made before the fork: a child that makes streams writes to a hundred pages."""


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
