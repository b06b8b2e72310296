"""The three ways to watch: once, live until the run ends or `q`, and line by line."""

from __future__ import annotations

import threading
import time
from typing import TextIO

from grpo_cli.display.frame.card import card_lines
from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.plain import PlainDisplay
from grpo_cli.display.terminal.keys import KeyReader
from grpo_cli.display.terminal.painter import Painter, screen_size
from grpo_cli.display.watch.run import RunWatcher, card_of, seconds_of
from grpo_cli.run.follow import is_evaluation, is_shown_step
from grpo_cli.run.records import dump_line
from grpo_cli.text import as_ascii, visible_lines

LOOK_S = 0.5
PIPE_SIZE = (100, 30)
"""Where there is no terminal to ask."""


def print_once(watching: RunWatcher, out: TextIO, *, ascii: bool, color: bool) -> None:
    """The frame as text, and the end card of a run that is over."""
    watching.look()
    width, height = screen_size(out, PIPE_SIZE)
    if out.isatty():  # what is printed once may scroll
        height = max(height, PIPE_SIZE[1])
    lines = frame_lines(watching.state.snapshot(time.time()), width, height, ascii=ascii)
    painter = Painter(out, color=color)
    out.writelines(f"{painter.render(line).rstrip()}\n" for line in lines)
    if watching.is_over:
        _write_card(watching, out, width, ascii)


def follow_live(watching: RunWatcher, out: TextIO, *, ascii: bool, color: bool) -> None:
    """The frame in place until the run is over or the person leaves."""
    left, moved = threading.Event(), threading.Event()

    def pressed(key: str) -> None:
        if key in ("q", "Q"):
            left.set()
        else:
            watching.state.press(key)
        moved.set()

    painter, keys = Painter(out, color=color), KeyReader(pressed)
    seen, painted, size = None, 0.0, (0, 0)
    try:
        painter.open()
        if keys.open():
            watching.state.set(keys=True)
        while True:
            watching.look()
            mark, now_size = (id(watching.state), watching.state.version), screen_size(out)
            if mark != seen or size != now_size or time.monotonic() - painted >= 1.0:
                seen, painted, size = mark, time.monotonic(), now_size
                painter.paint(frame_lines(watching.state.snapshot(time.time()), *size, ascii=ascii), size)
            moved.wait(LOOK_S)
            moved.clear()
            if watching.is_over or left.is_set():
                break
    finally:
        keys.close()
        painter.close()
    if watching.is_over:
        _write_card(watching, out, screen_size(out)[0], ascii)


def follow_lines(watching: RunWatcher, out: TextIO, *, as_json: bool, ascii: bool, once: bool = False) -> None:
    """What was written so far, then every new line until the run is over (unless `once`); each line carries its own time."""
    clock = [watching.began]
    plain = PlainDisplay(out, ascii=ascii, now=lambda: clock[0])
    if not as_json:
        plain.start(watching.info)
    while True:
        for metrics in watching.look():
            clock[0] = seconds_of(metrics.get("at")) or time.time()
            if as_json:
                out.write(dump_line(metrics))
                continue
            if is_shown_step(metrics):
                plain.step(metrics)
            if is_evaluation(metrics):
                plain.evaluated(metrics)
        out.flush()
        if watching.is_over or once:
            break
        time.sleep(LOOK_S)
    if watching.is_over and not as_json:
        _write_card(watching, out, 100, ascii)


def _write_card(watching: RunWatcher, out: TextIO, width: int, ascii: bool) -> None:
    text = "".join(f"{line}\n" for line in ["", *card_lines(card_of(watching.folder), max(width - 1, 20))])
    text = visible_lines(text)
    out.write(as_ascii(text) if ascii else text)
    out.flush()
