"""`judge` against a real server process on 127.0.0.1: slow, failing and lying ones among its answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadGold, BadOption, Outcome, Sample, Unavailable, Verdict, build
from grpo_verifiers.kinds.judge import JudgeVerifier

SERVER = Path(__file__).parent / "judge_server.py"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        server.kill()


def judge(url: str, **options: Any) -> JudgeVerifier:
    made = build("judge", base_url=url, model="m", **{"retries": 0, "timeout_s": 5.0} | options)
    assert isinstance(made, JudgeVerifier)
    return made


def verdicts(made: JudgeVerifier, *texts: str, row: dict[str, Any] | None = None) -> list[Verdict]:
    gold = made.compile(row or {})
    try:
        return made.judge([Sample(text, gold, "question") for text in texts])
    finally:
        made.close()


def calls(url: str) -> int:
    with urllib.request.urlopen(f"{url}/calls") as reply:
        return int(json.load(reply)["calls"])


def test_the_score_is_read_and_called_a_proxy(url: str) -> None:
    good, bad = verdicts(judge(url), "a good one", "a bad one")
    assert (good.outcome, good.score, good.reason) == (Outcome.RIGHT, 1.0, "learned_proxy")
    assert (bad.outcome, bad.score) == (Outcome.WRONG, 0.0)
    assert JudgeVerifier.is_learned


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("down", "judge_http_503"),
        ("forbidden", "judge_http_401"),
        ("garbage", "judge_no_completion"),
        ("lies", "judge_out_of_range"),
        ("nan", "judge_unread"),
        ("silent", "judge_empty"),
        ("chatty", "judge_unread"),
        ("good but cut", "judge_cut"),
    ],
)
def test_no_usable_reply_is_no_verdict(url: str, text: str, reason: str) -> None:
    good, got = verdicts(judge(url), "good", text)
    assert good.score == 1.0
    assert (got.outcome, got.score, got.reason) == (Outcome.ERROR, None, reason)
    assert got.detail


def test_a_key_that_no_header_can_hold_is_told_and_judges_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "κλειδί")
    with pytest.raises(Unavailable, match="UnicodeEncodeError"):
        judge(url, key_env="JUDGE_KEY").start()


@pytest.mark.parametrize("text", ["hang", "drip"])
def test_a_server_that_hangs_or_drips_costs_the_timeout_only(url: str, text: str) -> None:
    began = time.monotonic()
    (got,) = verdicts(judge(url, timeout_s=0.5), text)
    assert got.reason == "judge_timeout" and time.monotonic() - began < 2.0


def test_failures_that_pass_are_tried_again(url: str) -> None:
    busy, drops = verdicts(judge(url, retries=3), "good and busy", "good, drops once")
    assert (busy.score, drops.score) == (1.0, 1.0)


def test_the_last_line_with_a_score_counts(url: str) -> None:
    assert verdicts(judge(url), "quotes")[0].score == 0.0


def test_braces_and_tags_in_a_completion_stay_text(url: str) -> None:
    assert verdicts(judge(url), "good {rubric} {x} }{")[0].score == 1.0


def test_32_calls_of_a_second_take_at_most_three(url: str) -> None:
    made = judge(url)
    began = time.monotonic()
    got = verdicts(made, *(f"good second {i}" for i in range(32)))
    assert time.monotonic() - began <= 3.0
    assert [v.score for v in got] == [1.0] * 32


def test_equal_content_is_asked_once_and_failures_are_not_kept(url: str) -> None:
    made, before = judge(url), calls(url)
    gold = made.compile({})
    for _ in range(2):
        made.judge([Sample("good same", gold, "q")] * 8)
    assert calls(url) - before == 1
    before = calls(url)
    for _ in range(2):
        made.judge([Sample("down again", gold, "q")])
    made.close()
    assert calls(url) - before == 2


def test_a_used_up_budget_is_no_verdict(url: str) -> None:
    got = verdicts(judge(url, budget=2, concurrency=1), "good 1", "good 2", "good 3")
    assert [v.score for v in got] == [1.0, 1.0, None]
    assert got[2].reason == "judge_budget" and "2 calls" in got[2].detail


def test_the_rate_is_kept(url: str) -> None:
    began = time.monotonic()
    verdicts(judge(url, per_minute=300.0), *(f"good at {i}" for i in range(6)))
    assert time.monotonic() - began >= 5 * 0.2


def test_words_and_a_parse_rule_of_ones_own(url: str) -> None:
    made = judge(url, parse=r"(?i)\b(reason|never)\b", words={"Reason": 7}, range=[0, 10], right_at=5.0)
    (got,) = verdicts(made, "good")
    assert (got.score, got.outcome) == (7.0, Outcome.RIGHT)


def test_columns_reach_the_template(url: str) -> None:
    template = "gold {answer}\n<answer>\n{completion}\n</answer>"
    made = judge(url, template=template)
    assert made.columns == ("answer",)
    assert verdicts(made, "good", row={"answer": ["a", 1]})[0].score == 1.0
    with pytest.raises(BadGold, match="no column `answer`"):
        made.compile({})


def test_nobody_there_is_said_before_anything_is_judged() -> None:
    made = judge("http://127.0.0.1:9/v1")
    with pytest.raises(Unavailable, match="cannot be reached"):
        made.start()


def test_a_key_that_is_not_set_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(Unavailable, match="JUDGE_KEY"):
        judge(url, key_env="JUDGE_KEY").start()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "http://[x]/v1"}, "base_url"),
        ({"base_url": "http://host:port/v1"}, "base_url"),
        ({"base_url": "http://host:999999/v1"}, "base_url"),
        ({"model": ""}, "model"),
        ({"template": "no place"}, "template"),
        ({"template": "{completion"}, "template"),
        ({"parse": "("}, "parse"),
        ({"range": [1, 0]}, "range"),
        ({"budget": 0}, "budget"),
        ({"retries": -1}, "retries"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], option: str) -> None:
    with pytest.raises(BadOption) as caught:
        build("judge", **{"base_url": "http://127.0.0.1:1/v1", "model": "m"} | options)
    assert caught.value.option == option
