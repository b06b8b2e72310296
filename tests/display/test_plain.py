"""Plain lines, JSON lines, numbers and hostile text, at a fixed clock."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import JsonDisplay, LoggedDisplay, choose_mode, make_display
from grpo_cli.display.frame.card import card_lines
from grpo_cli.display.plain import PlainDisplay, step_line
from grpo_cli.display.terminal.live import LiveDisplay
from grpo_cli.errors import UsageError
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.info import Card, RewardSource, RunInfo
from grpo_cli.text import duration, number, percent, visible

INFO = RunInfo(
    run="1127-gsm8k-k3f9", recipe="recipes/gsm8k.yaml", sha="9f2c1e", model="Qwen2.5-0.5B", steps=500, prompts=16, group=8,
    sources=(RewardSource("math", 1.0, True), RewardSource("format", 0.1)),
)  # fmt: skip
STEP: dict[str, Any] = {
    "step": 142, "reward/total/mean": 0.612, "reward/math/mean": 0.547, "reward/format/mean": 0.648,
    "group/all_wrong": 3, "group/mixed": 9, "group/all_right": 4, "group/count": 16, "pass@1": 0.55, "pass@8": 0.81,
    "length/mean": 212.2, "truncated": 0.0156, "entropy": 0.34, "kl": 0.0041, "clip/total": 0.008, "grad_norm": 0.42,
    "tokens_per_s": 1400.0, "time/generate": 19.1, "time/verify": 2.2, "time/update": 9.1, "time/step": 30.4, "eta_s": 10860.0,
}  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.at = 1795789361.0

    def __call__(self) -> float:
        return self.at


def test_one_line_a_step() -> None:
    out = io.StringIO()
    display = PlainDisplay(out, now=Clock())
    display.start(INFO)
    display.step(STEP)
    assert out.getvalue() == (
        "2026-11-27T14:22:41Z INFO  start  run 1127-gsm8k-k3f9  recipe recipes/gsm8k.yaml  sha 9f2c1e  model Qwen2.5-0.5B  500 steps of 16x8\n"
        "2026-11-27T14:22:41Z INFO  step 142/500  reward 0.612  math 0.547  format 0.648  groups wrong 3 mixed 9 right 4  len 212"
        "  trunc 1.6%  ent 0.34  kl 0.0041  30.4s  eta 3h01m\n"
    )


def test_a_step_line_is_short_whatever_was_measured() -> None:
    everything = {**STEP, "turns/mean": 3.2, "env/invalid": 0.1, "think": 0.6, "loss": 0.013, "mfu": 0.4, "error": 0.25}
    everything |= {f"verify/math/reason/reason_number_{i}": 0.2 for i in range(5)}
    line = step_line(everything, INFO)
    assert len(line) <= 150
    for said in (
        "step 142/500",
        "reward 0.612",
        "wrong 3 mixed 9 right 4",
        "verifier errors 25%",
        "30.4s",
        "eta 3h01m",
    ):
        assert said in line


def test_not_measured_is_a_dash_and_never_zero() -> None:
    out = io.StringIO()
    display = PlainDisplay(out, now=Clock())
    display.start(INFO)
    display.step({"step": 1, "reward/total/mean": None, "kl": None})
    assert "reward —" in out.getvalue()
    assert "kl —" in out.getvalue()
    assert "groups wrong — mixed — right —" in out.getvalue()


def test_a_slow_step_speaks_every_thirty_seconds_at_most() -> None:
    out, clock = io.StringIO(), Clock()
    display = PlainDisplay(out, now=clock)
    for second in range(100):
        clock.at = 1795789361.0 + second
        display.phase("generate", second, 128)
    assert len(out.getvalue().splitlines()) == 3


def test_progress_says_its_begin_its_end_and_every_ten_seconds() -> None:
    out, clock = io.StringIO(), Clock()
    display = PlainDisplay(out, now=clock)
    for second in range(26):
        clock.at = 1795789361.0 + second
        display.progress("warm-up", second, 25)
    spoken = [line.split("INFO  ")[1] for line in out.getvalue().splitlines()]
    assert spoken == ["warm-up 0/25", "warm-up 10/25  10s", "warm-up 20/25  20s", "warm-up 25/25  25s"]


def test_an_evaluation_carries_n_and_half_width() -> None:
    out = io.StringIO()
    metrics = {
        "step": 150,
        "eval/pass@1": 0.502,
        "eval/pass@1/half": 0.031,
        "eval/pass@8": 0.79,
        "eval/n": 256,
        "eval/seconds": 41.2,
        "eval/best": True,
    }
    PlainDisplay(out, now=Clock()).evaluated(metrics)
    assert out.getvalue().endswith("eval step 150  pass@1 0.502 ±.031  pass@8 0.790  n 256  41s  best\n")


def test_plain_output_holds_no_carriage_return_and_no_escape() -> None:
    out = io.StringIO()
    display = PlainDisplay(out, now=Clock())
    display.note("warn", "bad\x1b]0;title\x07 text\r[/think]", hint="look\x1b[2J")
    assert "\r" not in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert "[/think]" in out.getvalue()
    assert "␛" in out.getvalue()


def test_a_stream_without_our_glyphs_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    display = make_display("plain", stream)
    display.evaluated({"step": 1, "eval/pass@1": 0.5, "eval/pass@1/half": 0.1})
    display.close()
    assert b"pass@1 0.500 ~.100" in raw.getvalue()


def test_json_lines_carry_the_keys_of_metrics() -> None:
    out = io.StringIO()
    display = JsonDisplay(out)
    display.start(INFO)
    display.step({"step": 1, "loss": float("nan")})
    display.finish(Card("done", 1.0))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [e["event"] for e in events] == ["start", "step", "finish"]
    assert events[1]["loss"] == "NaN"


def test_every_display_writes_the_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    for mode in ("none", "json", "plain"):
        display = make_display(mode, io.StringIO())
        display.note("info", "before the folder")
        display.start(RunInfo("x", log=str(log)))
        display.step(STEP)
        display.close()
        display.close()
    text = log.read_text()
    assert text.count("before the folder") == text.count("step 142/") == 3


def test_none_is_mute_but_for_errors() -> None:
    out = io.StringIO()
    display = make_display("none", out)
    display.step(STEP)
    display.note("warn", "quiet")
    assert out.getvalue() == ""
    display.note("error", "it broke")
    assert out.getvalue() == "error: it broke\n"


def test_auto_asks_the_stream_and_not_the_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("GRPO_DISPLAY", raising=False)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert choose_mode("auto", io.StringIO()) == "plain"
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    assert choose_mode("auto", terminal) == "live"
    monkeypatch.setenv("TERM", "dumb")
    assert choose_mode("auto", terminal) == "plain"


def test_a_notebook_gets_plain_lines_though_it_has_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("JPY_PARENT_PID", "7")
    monkeypatch.delenv("GRPO_DISPLAY", raising=False)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    assert choose_mode("auto", terminal) == "plain"
    assert choose_mode("live", terminal) == "live"


def test_an_unknown_display_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_DISPLAY", "fancy")
    with pytest.raises(UsageError, match="unknown display `fancy`"):
        make_display("auto", io.StringIO())


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0, "0"), (9.1e-7, "9.1e-07"), (0.0041, "0.0041"), (0.612, "0.612"), (3.14159, "3.14"), (71.28, "71.3"),
     (212.4, "212"), (1400, "1.4k"), (13_600_000, "13.6M"), (float("nan"), "nan"), (-0.5, "-0.500"), (-1400, "-1.4k")],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_shares_and_durations() -> None:
    assert [percent(v) for v in (None, 0, 0.0156, 0.56, 1)] == ["—", "0%", "1.6%", "56%", "100%"]
    assert [duration(v) for v in (None, 2.9, 34, 725, 10860, 90000)] == [
        "—",
        "2.9s",
        "34s",
        "12m 05s",
        "3h 01m",
        "1d 01h",
    ]


@pytest.mark.parametrize("hostile", ["\x1b[31m", "\x9b2J", "\u202eevil", "\0", "a\rb", "\x7f", "\u2028", "\ud800"])
def test_hostile_text_is_shown_and_not_obeyed(hostile: str) -> None:
    shown = visible(hostile)
    assert shown.isprintable()


def test_a_resumed_run_is_shown_with_its_past(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r", "", {})
    for step in range(1, 4):
        folder.write_metrics({"step": step, "group/count": 4, "reward/total/mean": 0.1 * step})
    folder.write_metrics({"step": 0, "eval/pass@1": 0.2})
    live = LiveDisplay(io.StringIO(), keys=False)
    display = LoggedDisplay(live)
    display.start(RunInfo("r", folder=str(folder.path)))
    display.step({"step": 3, "group/count": 4, "reward/total/mean": 0.9})
    display.close()
    shown = live._state.snapshot(0.0)
    assert shown.curves.of("step") == [1, 2, 3]
    assert shown.first is not None and shown.first["reward/total/mean"] == 0.1
    assert [m["eval/pass@1"] for m in shown.evaluations] == [0.2]


def test_a_card_with_one_evaluation_claims_no_change() -> None:
    lines = card_lines(
        Card("interrupted", 1.0, (), ({"step": 0, "eval/pass@1": 0.2, "eval/pass@4": 0.4, "eval/think": 0.1},)), 80
    )
    assert not any("→" in line for line in lines)


def test_a_card_keeps_to_its_width() -> None:
    seconds = dict.fromkeys(("setup", "warmup", "evaluate", "generate", "verify", "update", "other"), 1.0)
    lines = card_lines(Card("done", 9.0, (STEP,), (), device="cpu " * 40, reason="why " * 60, seconds=seconds), 60)
    assert max(map(len, lines)) <= 60
    assert sum("%" in line and "generate" in line for line in lines) == 1
    assert " update 14%" in "".join(lines)


def test_a_step_line_says_why_by_the_commonest_reasons_of_the_primary() -> None:
    info = RunInfo(run="r", steps=2, sources=(RewardSource("math", 1.0, True), RewardSource("format", 0.1)))
    metrics = {"step": 1, "verify/math/reason/no_box": 0.25, "verify/math/reason/equal:string": 0.5}
    metrics |= {"verify/math/reason/unequal": 0.125, "verify/math/reason/hedge": 0.0, "verify/format/reason/match": 1.0}
    assert "why equal:string 50%  no_box 25%  unequal 12" in step_line(metrics, info)


FROM_A_FILE = ({"step": 1, "loss": 0.68, "time/step": 5.0}, {"step": 2, "loss": 0.67, "time/step": 6.0})


def test_steps_that_drew_nothing_are_counted_and_claim_no_reward() -> None:
    first, loss, *_ = card_lines(Card("done", 14.0, FROM_A_FILE), 80)
    assert first.startswith(" done  2 steps in 14s") and "samples" not in first
    assert loss.split() == ["loss", "0.680", "→", "0.670"]
    line = step_line(FROM_A_FILE[0], INFO)
    assert line.startswith("step 1/500") and "—" not in line and "reward" not in line
