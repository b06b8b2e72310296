"""Nobody reads the progress any more, or the disk is full: the display goes on, and so does whoever else writes there."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import TextIO

import pytest

from grpo_cli.display.choose import JsonDisplay, SilentDisplay
from grpo_cli.display.plain import PlainDisplay, put
from grpo_cli.display.protocol import Display


@pytest.mark.parametrize("make", [PlainDisplay, JsonDisplay, SilentDisplay])
def test_a_closed_pipe_does_not_stop_a_display(make: Callable[[TextIO], Display]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        display = make(stream)
        display.note("error", "read")
        assert b"read" in os.read(reader, 1000)
        os.close(reader)
        display.note("error", "unread")
        display.note("error", "unread")
        print("unread", file=stream, flush=True)


def test_lines_come_again_when_a_full_disk_has_space_again() -> None:
    class Disk(io.StringIO):
        is_full = True

        def flush(self) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")

    disk = Disk()
    put(disk, "lost\n")
    disk.is_full = False
    put(disk, "kept\n")
    assert disk.getvalue().endswith("kept\n")
