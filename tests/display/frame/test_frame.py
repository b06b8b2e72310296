"""Frames at fixed sizes and clock against the pictures in `tests/cases/frames`; GRPO_UPDATE_FRAMES=1 redraws them."""

from __future__ import annotations

import io
import math
import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from grpo_cli.display import protocol
from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.frame.sample import GroupView, SampleLine, SampleView
from grpo_cli.display.frame.state import FrameState, RunState
from grpo_cli.run.info import RewardSource
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import step_stats, timing_stats
from grpo_cli.text import ASCII_BLOCKS, BLOCKS
from grpo_verifiers.verdict import Outcome, right, wrong
from tests.builders.display_state import BEGAN, INFO, full_state, run_state, step_metrics, view

FRAMES = Path(__file__).parents[2] / "cases" / "frames"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def drawn(state: FrameState, width: int, height: int, ascii: bool = False) -> str:
    return "".join(f"{line.plain.rstrip()}\n" for line in frame_lines(state, width, height, ascii=ascii))


def check(name: str, text: str) -> None:
    path = FRAMES / f"{name}.txt"
    if os.environ.get("GRPO_UPDATE_FRAMES"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("width", "height"),
    [(45, 10), (60, 12), (60, 15), (59, 24), (80, 24), (100, 11), (100, 30), (120, 40), (160, 50), (220, 60)],
)
def test_the_frame_is_the_one_in_the_picture(width: int, height: int) -> None:
    check(f"{width}x{height}", drawn(full_state(), width, height))


def test_the_frame_can_be_printed_by_rich() -> None:
    out = io.StringIO()
    for text in frame_lines(full_state(), 80, 24):
        Console(file=out, width=80).print(text)
    assert "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()) == drawn(full_state(), 80, 24)


def test_the_frame_in_ascii_is_the_one_in_the_picture() -> None:
    text = drawn(full_state(), 80, 24, ascii=True)
    assert text.isascii()
    check("80x24-ascii", text)


def test_a_fresh_run_without_held_out_rows_is_the_one_in_the_picture() -> None:
    state = RunState(BEGAN)
    state.set(info=replace(INFO, log="", sources=()))
    state.act("warm-up", 120, 400, BEGAN, is_step=False)
    text = drawn(state.snapshot(BEGAN + 12), 80, 24)
    state.act("load model", None, None, BEGAN + 12, is_step=False)
    text += drawn(state.snapshot(BEGAN + 16), 80, 24)
    state.step({"step": 1}, None)
    check("80x24-fresh", text + drawn(state.snapshot(BEGAN + 20), 80, 24))


HOSTILE = [
    "[/think] [bold red]x[/]", "\x1b[2J\x1b]0;title\x07", "\u202egnp.exe", "\0\0\0", "a" * 100_000, "日本語" * 50, "👩‍👩‍👧" * 40,
    "\n\r\t" * 30, "e\u0301" * 100, "\x9b31m", "\ud800", "",
]  # fmt: skip


def hostile_state(text: str) -> FrameState:
    bad: SampleView = view(text)
    group = replace(bad.groups[0], question=text, expected=text, row=text)
    state = run_state(20, replace(bad, groups=(group,)))
    state.set(
        info=replace(INFO, recipe=text, run=text, device=text, log=text, sources=(RewardSource(text[:40] or "x"),))
    )
    state.note("warn", text, text, BEGAN)
    return state.snapshot(BEGAN + 5)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_neither_breaks_a_frame_nor_moves_the_cursor(text: str) -> None:
    for width, height in ((80, 24), (100, 30), (61, 13), (30, 5)):
        lines = frame_lines(hostile_state(text), width, height)
        assert len(lines) < height
        assert all(line.cell_len < width for line in lines)
        assert all(char.isprintable() for line in lines for char in line.plain)


def test_a_frame_never_exceeds_its_size() -> None:
    rng = random.Random(5)
    many = replace(INFO, sources=tuple(RewardSource(f"verifier{i}", i) for i in range(9)), steps=10**9)
    states = [full_state(), RunState(BEGAN).snapshot(BEGAN), replace(full_state(), info=many)]
    for _ in range(300):
        width, height = rng.randint(1, 220), rng.randint(2, 60)
        for state in states:
            lines = frame_lines(state, width, height)
            assert 1 <= len(lines) <= max(1, height - 1)
            assert max(line.cell_len for line in lines) <= max(width - 1, 1)


def test_odd_numbers_are_drawn_and_not_raised() -> None:
    state = run_state(3)
    odd = {
        key: random.Random(key).choice([math.nan, math.inf, -math.inf, None])
        for key in step_metrics(1)
        if "hist" not in key and "group/" not in key
    }
    state.step({**step_metrics(4), **odd, "step": 4}, None)
    for width, height in ((80, 24), (100, 30)):
        assert "nan" in drawn(state.snapshot(BEGAN), width, height)


def test_what_was_never_measured_is_a_dash() -> None:
    state = RunState(BEGAN)
    state.set(info=INFO)
    state.step({"step": 1}, None)
    text = drawn(state.snapshot(BEGAN), 80, 24)
    assert "kl —" in text
    assert "signal —" in text
    assert " 0.000" not in text


def group_of(size: int, right: int, row: str = "rows.jsonl:7") -> GroupView:
    """A group whose first samples are right; each says its number."""
    lines = tuple(
        SampleLine(
            Outcome.RIGHT if i < right else Outcome.WRONG, 1.0 if i < right else -0.5, None, f"text {i} end", 10 + i
        )
        for i in range(size)
    )
    return GroupView(row, "why?", "72", right, size, lines)


def test_keys_choose_the_group_and_the_wrong_ones() -> None:
    state = run_state(2, SampleView(2, (group_of(8, 8, "right"), group_of(8, 5, "mixed"), group_of(8, 0, "wrong"))))

    def shown() -> str | None:
        group = state.snapshot(BEGAN).group()
        return group and group.row

    assert shown() == "right"
    for key, row in (
        ("n", "mixed"),
        ("right", "wrong"),
        ("n", "right"),
        ("N", "wrong"),
        ("left", "mixed"),
        ("g", "right"),
    ):
        state.press(key)
        assert shown() == row
    state.press("w")
    assert shown() == "mixed"
    state.press("w")
    assert shown() == "right"


def test_all_samples_of_a_group_stand_beside_their_advantages_and_one_is_read() -> None:
    state = run_state(2, SampleView(2, (group_of(8, 5),)))
    text = drawn(state.snapshot(BEGAN), 120, 44)
    assert text.count("✔ +1.00") == 5 and text.count("✘ -0.50") == 3
    assert "10 tokens" in text and "17 tokens" in text
    assert "rows.jsonl:7 · 5/8 right · expected 72" in text
    assert "│ text 0 end" in text
    for key, read in (("j", 1), ("down", 2), ("k", 1)):
        state.press(key)
        assert f"│ text {read} end" in drawn(state.snapshot(BEGAN), 120, 44)
    for _ in range(20):
        state.press("j")
    assert "│ text 7 end" in drawn(state.snapshot(BEGAN), 120, 44)


def test_few_rows_show_the_best_and_the_worst_and_more_when_asked() -> None:
    state = run_state(2, SampleView(2, (group_of(8, 5),)))
    text = drawn(state.snapshot(BEGAN), 80, 24)
    assert "text 0 end" in text and "text 7 end" in text and "text 3 end" not in text
    for _ in range(3):
        state.press("j")
    assert "> ✔ +1.00  text 3 end" in drawn(state.snapshot(BEGAN), 80, 24)


def test_a_long_text_is_scrolled_from_its_end() -> None:
    long = SampleLine(Outcome.RIGHT, 1.0, None, " ".join(f"word{i}" for i in range(500)), 500)
    state = run_state(2, SampleView(2, (replace(group_of(1, 1), lines=(long, long)),)))
    assert "word499" in drawn(state.snapshot(BEGAN), 120, 44)
    for _ in range(200):
        state.press("u")
    text = drawn(state.snapshot(BEGAN), 120, 44)
    assert "word0 word1" in text and "word499" not in text
    state.press("d")
    assert "word0 word1" not in drawn(replace(state.snapshot(BEGAN), scroll=3), 120, 44)


def test_the_help_page_comes_and_goes_and_fits() -> None:
    state = run_state(3, view())
    state.press("?")
    for width, height in ((45, 10), (80, 24), (220, 60)):
        lines = frame_lines(state.snapshot(BEGAN), width, height)
        assert len(lines) < height
        assert any("next and previous group" in line.plain for line in lines)
    text = drawn(state.snapshot(BEGAN), 80, 24)
    for word in ("pause after this step", "save a checkpoint", "measure the held-out rows", "ctrl-c", "wrong", "mixed"):
        assert word in text
    state.press("?")
    assert "what is what" not in drawn(state.snapshot(BEGAN), 80, 24)


def test_the_keys_stand_at_the_foot_of_eighty_columns() -> None:
    foot = drawn(full_state(), 80, 24).splitlines()[-1]
    assert foot == " ? keys   n group   p pause   s save   e evaluate   ctrl-c: finish, save, stop"


def test_keys_that_are_not_read_are_not_named() -> None:
    foot = drawn(replace(full_state(), keys=False), 80, 24).splitlines()[-1]
    assert "?" not in foot and foot.startswith(" ctrl-c: finish this step, save, stop  ")


@pytest.mark.parametrize("ascii", [False, True])
def test_the_held_out_row_draws_nothing_between_its_evaluations(ascii: bool) -> None:
    bars = ASCII_BLOCKS if ascii else BLOCKS
    row = next(text for text in drawn(full_state(), 80, 24, ascii).splitlines() if "held-out" in text)
    assert row[48:].replace(" ", "") == bars[1] + bars[3]


def test_the_last_known_kl_stays_with_its_step() -> None:
    state = run_state(2)
    state.step({**step_metrics(3), "kl": 0.25}, None)
    state.step({**step_metrics(4), "kl": None}, None)
    assert "kl 0.250 @3" in drawn(state.snapshot(BEGAN), 80, 24)
    assert re.search(r"kl +0\.250 .* @3\n", drawn(state.snapshot(BEGAN), 100, 30))


def test_a_part_that_is_all_of_the_reward_is_said_once() -> None:
    state = run_state(3)
    state.set(info=replace(INFO, sources=(RewardSource("math", 1.0, True),)))
    text = drawn(state.snapshot(BEGAN), 80, 24)
    assert "   math  " in text and "total" not in text and "x1.0" not in text


def test_right_mixed_and_wrong_are_one_bar_told_apart_without_colour_and_in_three_colours() -> None:
    lines = frame_lines(full_state(), 80, 24)
    bar = next(line for line in lines if "wrong 3" in line.plain)
    assert re.search(r"░{7}▒+█{9}", bar.plain)
    styles = {bar.plain[span.start]: str(span.style) for span in bar.spans if bar.plain[span.start] in "░▒█"}
    assert styles == {"░": "red", "▒": "yellow", "█": "cyan"}
    plain = next(line.plain for line in frame_lines(full_state(), 80, 24, ascii=True) if "wrong 3" in line.plain)
    assert re.search(r"\.{7}=+#{9}", plain)


def test_held_out_points_stand_on_the_chart_of_the_reward() -> None:
    text = drawn(full_state(), 120, 40)
    assert text.count("●") == 3  # the legend, step 0 and step 125


def test_a_histogram_of_large_groups_is_joined() -> None:
    state = run_state(1)
    metrics = step_metrics(2) | {f"group/hist/{k}": 1 for k in range(65)} | {"group/size": 64}
    state.step(metrics, None)
    line = next(line for line in drawn(state.snapshot(BEGAN), 80, 24).splitlines() if "0/64" in line)
    assert "64/64" in line


def test_a_long_run_keeps_its_first_step_and_a_bounded_history() -> None:
    state = run_state(1)
    for step in range(2, 2000):
        state.step({"step": step, "reward/total/mean": 0.5}, None)
    snapshot = state.snapshot(BEGAN)
    assert snapshot.first is not None and snapshot.first["step"] == 1
    assert 256 <= len(snapshot.curves.of("step")) <= 512
    assert len(snapshot.recent) == 10


class Asked(dict[str, Any]):
    """Metrics that remember which of them were looked at."""

    keys_asked: ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked.add(key)
        return super().get(key, default)


def test_every_number_on_the_screen_has_the_name_of_a_recorded_metric() -> None:
    verdicts = {"math": right("1", "equal", 0.1), "format": wrong("2", "no_match", 0.1)}
    records = [
        SampleRecord(1, "r", g, "q", "<think>a</think>b", {}, verdicts, Outcome.RIGHT, 1.0, 0.0, 9)
        for g in (0, 0, 1, 1)
    ]
    timing = timing_stats({"generate": 1.0, "verify": 1.0, "update": 1.0}, 36, step_s=3.0, recent_s=[], steps_left=1)
    recorded = step_stats(records, 2, (1, 2)) | timing
    documented = set(re.findall(r"`([a-z_]+(?:/[a-z_@]+)*)`", protocol.__doc__ or ""))
    state = RunState(BEGAN)
    state.set(info=INFO)
    state.step(Asked({"step": 1} | recorded), view())
    snapshot = replace(state.snapshot(BEGAN), first=Asked(recorded), recent=(Asked({"step": 1} | recorded),))
    for width, height in ((80, 24), (100, 30), (50, 10)):
        frame_lines(snapshot, width, height)
    asked = {key for key in Asked.keys_asked if not re.fullmatch(r"group/hist/\d+", key)}
    assert {"reward/total/mean", "group/mixed", "verify/math/p95_s", "think"} <= asked
    assert asked - recorded.keys() - documented == set()
