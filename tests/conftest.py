"""For every test: a process it starts takes signals as one started from a shell, also where the tests themselves run in
the background of a script, which ignores Ctrl-C, or under nohup; and a command called in this process leaves the
environment as it was. Folders of `TARGETS` are dear: `make test-NAME` runs each of them, `make test` the others."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TARGETS = {
    "cli": ("cli",),
    "property": ("property",),
    "loop": ("loop",),
    "faults": ("faults",),
    "sandbox": ("verifiers/sandbox", "verifiers/program"),
    "reference": ("reference", "train/prefer/test_losses.py"),
    "docs": ("docs/run",),
}
"""By mark: the folders and files whose tests have it."""
LEFT: Counter[str] = Counter()
"""By mark: tests that were collected and are not run."""

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
"""As the commands set it: before anything imports the hub's client, whose thread would look up hosts while a test changes
the environment, which crashes glibc."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _environment_as_before() -> Iterator[None]:
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the mark of its folder, before those that are not asked for are left out."""
    for item in items:
        for name, folders in TARGETS.items():
            if any(item.path.is_relative_to(HERE / folder) for folder in folders):
                item.add_marker(name)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left to other targets."""
    others = ("slow", "gpu", "browser", *TARGETS)
    for item in items:
        LEFT.update([next((name for name in others if item.get_closest_marker(name)), "")])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which target runs what this one did not."""
    left = [f"{n} by `make test-{name}`" for name, n in sorted(LEFT.items()) if name]
    if left:
        terminalreporter.write_line(f"not run here: {', '.join(left)}")
