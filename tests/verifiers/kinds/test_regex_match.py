"""`regex`: what matches, what is compared, and that no pattern can burst its bound."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from grpo_verifiers import BadGold, BadOption, Outcome, Verdict, build


def judged(completion: str, answer: Any = None, **options: Any) -> Verdict:
    return build("regex", **options).verify(completion, {} if answer is None else {"answer": answer})


def test_search_finds_the_pattern_across_lines() -> None:
    assert judged("<think>\na\n</think> b", pattern="<think>.*</think>").outcome is Outcome.RIGHT


def test_no_match_is_wrong() -> None:
    got = judged("nothing", pattern="<think>")
    assert (got.outcome, got.score, got.reason) == (Outcome.WRONG, 0.0, "no_match")


def test_full_takes_the_whole_text() -> None:
    assert judged("ab", pattern="a", match="full").outcome is Outcome.WRONG
    assert judged("ab", pattern="a.", match="full").outcome is Outcome.RIGHT


def test_flags_are_letters() -> None:
    assert judged("YES", pattern="yes", flags="i").outcome is Outcome.RIGHT
    assert judged("a\nb", pattern="a.b", flags="").outcome is Outcome.WRONG


def test_several_patterns_share_the_score() -> None:
    got = judged("<a>", pattern=["<a>", "<b>"], weights=[3.0, 1.0])
    assert (got.outcome, got.score) == (Outcome.WRONG, 0.75)
    assert judged("<a><b>", pattern=["<a>", "<b>"]).outcome is Outcome.RIGHT


def test_answer_group_takes_the_last_match() -> None:
    options = {"pattern": r"answer: (?P<answer>\d+)", "match": "answer_group"}
    assert judged("answer: 3 … answer: 4", "4", **options).outcome is Outcome.RIGHT
    assert judged("answer: 4 … answer: 3", "4", **options).outcome is Outcome.WRONG
    assert judged("no digits", "4", **options).outcome is Outcome.NO_ANSWER


def test_a_group_ends_with_its_line_unless_told_otherwise() -> None:
    options = {"pattern": "answer: (.*)", "match": "answer_group"}
    assert judged("answer: 4\nThat is all.", "4", **options).outcome is Outcome.RIGHT
    assert judged("answer: 4\nThat is all.", "4", flags="s", **options).outcome is Outcome.WRONG


def test_a_single_unnamed_group_needs_no_name() -> None:
    assert judged("= 4", 4, pattern=r"= (\d)", match="answer_group").outcome is Outcome.RIGHT


@pytest.mark.parametrize(
    ("compare", "answer", "text", "is_right"),
    [
        ("exact", "Paris", "paris", False),
        ("casefold", "Paris", "paris", True),
        ("casefold", "Straße", "STRASSE", True),
        ("numeric", "1000", "1,000.0", True),
        ("numeric", "0.5", ".50", True),
        ("numeric", "1000", "1,00", False),
        ("numeric", "7", "٧", True),
        ("numeric", "5", "5_", False),
        ("numeric", "5", "nan", False),
        ("numeric", "-2", "−2", True),
    ],
)
def test_group_and_gold_are_compared_as_asked(compare: str, answer: str, text: str, is_right: bool) -> None:
    got = judged(f"<<{text}>>", answer, pattern="<<(.*)>>", match="answer_group", compare=compare)
    assert (got.outcome is Outcome.RIGHT) == is_right


@pytest.mark.parametrize("gold", [None, "", "  ", True, [], {}])
def test_a_gold_that_is_no_text_is_refused(gold: Any) -> None:
    with pytest.raises(BadGold):
        build("regex", pattern="(a)", match="answer_group").compile({"answer": gold})


def test_numeric_compare_needs_a_numeric_gold() -> None:
    with pytest.raises(BadGold, match="not a number"):
        judged("a", "Paris", pattern="(a)", match="answer_group", compare="numeric")


@pytest.mark.parametrize(
    ("options", "option", "says"),
    [
        ({"pattern": ""}, "pattern", "empty"),
        ({"pattern": "a(b"}, "pattern", "missing .* at character 4"),
        ({"pattern": "a", "match": "answer_group"}, "group", "no group `answer`"),
        ({"pattern": "a", "flags": "q"}, "flags", "unknown flag `q`"),
        ({"pattern": ["a", "b"], "weights": [1.0]}, "weights", "1 weights for 2 patterns"),
        ({"pattern": ["a", "b"], "weights": [1.0, -1.0]}, "weights", "must not be negative"),
        ({"pattern": "a", "timeout_s": 0.0}, "timeout_s", "above 0"),
        ({"patern": "a"}, "patern", "did you mean `pattern`"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], option: str, says: str) -> None:
    with pytest.raises(BadOption, match=says) as caught:
        build("regex", **options)
    assert caught.value.option == option


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"(.*a){25}$", r"^(\w+\s?)*$", r"(a*)*b\1"])
def test_catastrophic_backtracking_is_over_limit_within_the_bound(pattern: str) -> None:
    made = build("regex", pattern=pattern, timeout_s=0.2)
    began = time.process_time()
    got = made.verify("a" * 5000 + "!", {})
    assert time.process_time() - began < 1.0
    made.close()
    assert got.outcome in (Outcome.OVER_LIMIT, Outcome.WRONG, Outcome.RIGHT)


def test_a_pattern_that_needs_more_than_the_short_budget_still_gets_its_verdict() -> None:
    made = build("regex", pattern=r"(?:a?){26}a{26}$", timeout_s=20.0)
    got = made.verify("a" * 26, {})
    made.close()
    assert got.outcome is Outcome.RIGHT


def test_huge_completions_are_over_limit() -> None:
    assert judged("a" * 300_000, pattern="b").reason == "too_long"


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    atoms = [
        "a",
        "b",
        ".",
        r"\w",
        r"\s",
        "[ab]",
        "(a|a)",
        "(a|aa)",
        "(a*)",
        r"(\w+)",
        "a+",
        "(?=a)",
        "(?!b)",
        r"\b",
        "[^b]",
    ]
    times = ["*", "+", "?", "{2,}", "{1,50}", "*?", "+?", "{0,1000}", ""]
    parts = []
    for _ in range(rng.randint(1, 3)):
        is_leaf = depth > 2 or rng.random() < 0.5
        parts.append((rng.choice(atoms) if is_leaf else f"({random_pattern(rng, depth + 1)})") + rng.choice(times))
    return "".join(parts)


def fuzz(count: int, seed: int) -> float:
    """The largest wall time over the bound, in seconds, of `count` pathological patterns that compile."""
    rng, worst, made = random.Random(seed), 0.0, 0
    while made < count:
        try:
            verifier = build("regex", pattern=random_pattern(rng), timeout_s=0.05)
        except BadOption:
            continue
        made += 1
        began = time.perf_counter()
        verifier.verify("a" * 2000 + "!" + "ab" * 500, {})
        worst = max(worst, time.perf_counter() - began)
        verifier.close()
    return worst


def test_no_random_pattern_bursts_its_bound() -> None:
    assert fuzz(60, seed=1) < 3.0


@pytest.mark.slow
def test_no_pattern_of_a_thousand_bursts_its_bound() -> None:
    assert fuzz(1000, seed=2) < 3.0
