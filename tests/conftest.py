"""For every test: a process it starts takes signals as one started from a shell, also where the tests themselves run in
the background of a script, which ignores Ctrl-C, or under nohup; and a command called in this process leaves the
environment as it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

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
