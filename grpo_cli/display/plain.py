"""One line a step for pipes, CI and `train.log`: no carriage returns, ISO times, flushed; — is "not measured".

How this works: `PlainDisplay` adds the time to each line and writes it with `put`, which ignores a closed pipe, a
closed terminal and a full disk: a run must not end because its progress cannot be shown. `step_line` makes the text of
a step.
"""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from grpo_cli.display.frame.card import card_lines
from grpo_cli.display.frame.sample import SampleView
from grpo_cli.display.protocol import Display
from grpo_cli.run.info import Card, Level, Metrics, RewardSource, RunInfo
from grpo_cli.statistics.step import as_drawn
from grpo_cli.text import as_ascii, duration, number, percent, plus_minus, reasons, score, two_decimals, visible

GONE = (errno.EPIPE, errno.EIO)
"""Errors of a write after the reader of a pipe, or the terminal, is gone."""


Stream = TextIO | io.TextIOBase


def put(stream: Stream, text: str) -> None:
    """Write and flush. On a full disk the text is dropped, as in `train.log`, which has the same lines.

    When the reader is gone, all later output to this descriptor is discarded, also that of other code.

    Raises:
        UnicodeEncodeError: the encoding of the stream lacks a character; nothing was written.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as err:
        if err.errno in GONE:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


QUIET_PHASE_S = 30.0
QUIET_PROGRESS_S = 10.0
WORDS = {"info": "INFO", "good": "INFO", "warn": "WARN", "error": "ERROR"}


class PlainDisplay(Display):
    """Lines on a stream that is not a terminal."""

    def __init__(
        self, stream: Stream, *, ascii: bool = False, now: Callable[[], float] = time.time, card: bool = True
    ) -> None:
        self._stream, self._ascii, self._now, self._card = stream, ascii, now, card
        self._lock = threading.RLock()
        self._last = self._noun_began = now()
        self._noun = ""
        self._info = RunInfo("")

    def start(self, info: RunInfo) -> None:
        """The first line."""
        self._info = info
        parts = [f"start  run {info.run}"]
        parts += [
            f"{word} {visible(value)}"
            for word, value in (("recipe", info.recipe), ("sha", info.sha[:8]), ("model", info.model))
            if value
        ]
        if info.device:
            parts.append(f"on {info.device}")
        parts.append(f"{info.steps} steps of {info.prompts}x{info.group}")
        if info.seed is not None:
            parts.append(f"seed {info.seed}")
        if info.start_step:
            parts.append(f"from step {info.start_step}")
        self._say("INFO", "  ".join(parts))

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """At most one line in 30 s of silence."""
        with self._lock:
            if self._now() - self._last >= QUIET_PHASE_S:
                self._say("INFO", f"  {name}{_of(done, total)}")

    def progress(self, noun: str, done: int | None = None, total: int | None = None) -> None:
        """A line when work begins, every 10 s, and when it ends."""
        with self._lock:
            began = noun != self._noun
            if began:
                self._noun, self._noun_began = noun, self._now()
            ended = total is not None and done == total
            if began or ended or self._now() - self._last >= QUIET_PROGRESS_S:
                took = "" if began else f"  {duration(self._now() - self._noun_began)}"
                self._say("INFO", f"{noun}{_of(done, total)}{took}")
            if ended:
                self._noun = ""

    def step(self, metrics: Metrics, view: SampleView | None = None) -> None:
        """The line of a step."""
        self._say("INFO", step_line(metrics, self._info))

    def evaluated(self, metrics: Metrics) -> None:
        """The line of an evaluation."""
        parts = [f"eval step {metrics.get('step', number(None))}"]
        ks = sorted(int(key[10:]) for key in metrics if key.startswith("eval/pass@") and key[10:].isdigit())
        for k in ks:
            value = metrics[f"eval/pass@{k}"]
            parts.append(f"pass@{k} {score(value)} {plus_minus(metrics.get(f'eval/pass@{k}/half'))}".rstrip())
        if metrics.get("eval/greedy") is not None:
            greedy = f"greedy {score(metrics['eval/greedy'])} {plus_minus(metrics.get('eval/greedy/half'))}"
            parts.append(greedy.rstrip())
        if metrics.get("eval/think") is not None:
            parts.append(f"think {percent(metrics['eval/think'])}")
        if metrics.get("eval/n") is not None:
            parts.append(f"n {metrics['eval/n']}")
        if metrics.get("eval/without_verdict"):
            parts.append(f"without verdict {metrics['eval/without_verdict']}")
        if metrics.get("eval/seconds") is not None:
            parts.append(duration(metrics["eval/seconds"], ""))
        if metrics.get("eval/best"):
            parts.append("best")
        self._say("INFO", "  ".join(parts))

    def note(self, level: Level, text: str, hint: str = "") -> None:
        """A note on its own line, each of its lines stamped."""
        text = f"{text}  hint: {hint}" if hint else text
        for line in text.splitlines() or [""]:
            self._say(WORDS[level], visible(line))

    def finish(self, card: Card) -> None:
        """The end card, or its first line alone where another display prints it."""
        lines = card_lines(card, 100)
        if not self._card:
            self._say("INFO", lines[0].strip())
            return
        self._write("".join(f"{line}\n" for line in lines))

    def move_to(self, stream: Stream) -> None:
        """Write to another stream from now on."""
        with self._lock:
            self._stream = stream

    def _say(self, level: str, text: str) -> None:
        with self._lock:
            self._last = self._now()
            stamp = datetime.fromtimestamp(self._last, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._write(f"{stamp} {level:<5} {text}\n")

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                put(self._stream, as_ascii(text) if self._ascii else text)
            except UnicodeEncodeError:
                put(self._stream, as_ascii(text))


def step_line(metrics: Metrics, info: RunInfo) -> str:
    """The numbers of a step, in the order of the live frame and as many as fit into `LONGEST`; scores are over all
    drawn samples."""
    metrics = as_drawn(metrics)
    get = metrics.get
    parts = [(0, f"step {get('step')}/{info.steps or number(None)}")]
    if draws := "reward/total/mean" in metrics:  # a step that learns from a file has no reward
        kinds = [f"{word} {number(get(f'group/{key}'))}" for word, key in KINDS]
        parts += [
            (0, f"reward {score(get('reward/total/mean'))}"),
            *(
                (2, f"{visible(source.name)} {score(get(f'reward/{source.name}/mean'))}")
                for source in shown_sources(info, metrics, 4)
            ),
            (0, f"groups {' '.join(kinds)}"),
        ]
    ks = [int(key[5:]) for key in metrics if key.startswith("pass@") and key[5:].isdigit()]
    if ks:
        parts.append((4, f"pass@{max(ks)} {two_decimals(get(f'pass@{max(ks)}'))}"))
    if draws:
        parts += [(0, f"len {number(get('length/mean'))}"), (0, f"trunc {percent(get('truncated'))}")]
    parts += [(rank, f"{word} {form(get(key))}") for rank, word, key, form in STEP_PARTS if key in metrics]
    primary = next((source.name for source in info.sources if source.primary), "")
    if why := reasons(metrics, primary):
        parts.append((3, f"why {why}"))
    if get("error"):
        parts.append((0, f"verifier errors {percent(get('error'))}"))
    if get("tokens_per_s") is not None:
        parts.append((4, f"{number(get('tokens_per_s'))} tok/s"))
    total, _, phases = timing(metrics).partition(" = ")
    parts += [(0, total), (5, f"= {phases}")] if phases else [(0, total)]
    if get("eta_s") is not None:
        parts.append((0, f"eta {duration(get('eta_s'), '')}"))
    # if the line is too long, drop parts of the highest rank, later ones before earlier ones
    while sum(len(text) + 2 for _, text in parts) - 2 > LONGEST and (last := max(rank for rank, _ in parts)):
        del parts[max(i for i, (rank, _) in enumerate(parts) if rank == last)]
    return "  ".join(text for _, text in parts)


KINDS = (("wrong", "all_wrong"), ("mixed", "mixed"), ("right", "all_right"))

LONGEST = 150
"""Most characters of a step's line after its time, unless the mandatory parts need more."""

STEP_PARTS = (
    (3, "turns", "turns/mean", number),
    (3, "rows", "endpoint/rows", number),
    (3, "invalid", "env/invalid", percent),
    (1, "anchors", "credit/anchor_share", percent),
    (1, "milestone 1", "credit/milestone_1/reached", percent),
    (2, "milestone 2", "credit/milestone_2/reached", percent),
    (3, "think", "think", percent),
    (1, "ent", "entropy", two_decimals),
    (1, "kl", "kl", number),
    (1, "explains", "critic/explained_variance", two_decimals),
    (1, "value loss", "critic/loss", number),
    (6, "clip", "clip/total", percent),
    (6, "grad", "grad_norm", two_decimals),
    (6, "loss", "loss", number),
    (6, "mfu", "mfu", percent),
)
"""Rank, word, metric and format; `metrics.jsonl` has all of them, including those that do not fit the line."""

TIMED = (
    ("gen", "time/generate"),
    ("env", "time/environment"),
    ("verify", "time/verify"),
    ("critic", "time/critic"),
    ("update", "time/update"),
)
"""The phases of a step with their words in a line."""


def timing(metrics: Metrics) -> str:
    """`30.4s = gen 19.1 + verify 2.2 + update 9.1`; shares of less than a twentieth of a second are left to `other`."""
    total = metrics.get("time/step")
    if total is None:
        return number(None)
    phases = [f"{word} {seconds(metrics[key])}" for word, key in TIMED if metrics.get(key) is not None]
    return f"{seconds(total)}s" + (f" = {' + '.join(phases)}" if phases else "")


def seconds(value: float) -> str:
    """Seconds with two decimals below 1, one below 100, none above."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def shown_sources(info: RunInfo, metrics: Metrics, most: int) -> list[RewardSource]:
    """The sources with the largest weights, in the recipe's order; those in the metrics where no recipe is known."""
    sources = list(info.sources) or [
        RewardSource(key.split("/")[1])
        for key in metrics
        if key.startswith("reward/") and key.endswith("/mean") and key != "reward/total/mean"
    ]
    if len(sources) <= most:
        return sources
    kept = sorted(sources, key=lambda s: (not s.primary, -abs(s.weight)))[: most - 1]
    return [s for s in sources if s in kept]


def _of(done: int | None, total: int | None) -> str:
    if done is None:
        return ""
    return f" {done}/{total}" if total is not None else f" {done}"
