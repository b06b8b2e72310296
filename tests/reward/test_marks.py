"""Where a milestone of a text or the end of a plan stands among tokens."""

from __future__ import annotations

import time

import pytest

from grpo_cli.policy.model import byte_tokenizer
from grpo_cli.recipe.sections.recipe import TurnCredit
from grpo_cli.reward import group_judge
from grpo_cli.reward.group_judge import CreditMarker
from grpo_cli.rollout.engine import Completion, Episode, Turn


def decode(ids: list[list[int]]) -> list[str]:
    said: list[str] = byte_tokenizer().batch_decode(ids, skip_special_tokens=True)
    return said


def completion(text: str, episode: Episode | None = None) -> Completion:
    ids = byte_tokenizer().encode(text)
    return Completion(ids, [-1.0] * len(ids), "stop", episode=episode)


def parts(text: str, **patterns: str) -> list[tuple[str, str | None]]:
    """The text of each part and the milestone that ends it."""
    made = completion(text)
    (marked,) = CreditMarker(TurnCredit(method="milestones", patterns=patterns), decode).put([made])
    ids = made.token_ids
    assert [turn.start for turn in marked.marks[1:]] == [turn.end for turn in marked.marks[:-1]]
    assert marked.marks[0].start == 0 and marked.marks[-1].end == len(ids) and marked.mask == [1] * len(ids)
    return [(decode([ids[t.start : t.end]])[0], t.milestone) for t in marked.marks]


def test_an_answer_is_cut_behind_each_milestone() -> None:
    assert parts("3+4=7, 7+5=12 so 12", first="= ?7", second="=12") == [
        ("3+4=7", "first"),
        (", 7+5=12", "second"),
        (" so 12", None),
    ]


def test_only_the_first_place_counts_and_none_is_one_part() -> None:
    assert parts("a b a", a="a", z="z") == [("a", "a"), (" b a", None)]
    assert parts("nothing", z="z") == [("nothing", None)]
    assert parts("x", z="x") == [("x", "z")]


def test_a_pattern_without_end_leaves_the_answer_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_judge, "PATTERN_S", 0.05)
    began = time.monotonic()
    assert parts("a" * 300 + "b", z="(a|a)*=") == [("a" * 300 + "b", None)]
    assert time.monotonic() - began < 20


def test_of_two_that_end_at_the_same_token_the_first_by_name_counts() -> None:
    assert parts("ab!", one="b", two="ab") == [("ab", "one"), ("!", None)]


def test_a_character_of_several_tokens_is_not_cut() -> None:
    assert parts("caf\u00e9 done", cup="caf\u00e9") == [("caf\u00e9", "cup"), (" done", None)]


def test_an_empty_answer_is_one_empty_part() -> None:
    (marked,) = CreditMarker(TurnCredit(method="milestones", patterns={"a": "a"}), decode).put(
        [Completion([], [], "stop")]
    )
    assert marked.marks == (Turn(0, 0),)


PLANS = {
    "first": [len("go</plan> on"), 0, 0],
    "</plan>": [len("go</plan>"), 0, len("then</plan>")],
    "</other>": [0, 0, 0],
}


@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_of_a_turn_ends_behind_its_tag(plan: str) -> None:
    turns, start = list[Turn](), 0
    for text in ("go</plan> on", "act", "then</plan>!x"):
        turns.append(Turn(start, start + len(text)))
        start += len(text) + 1
    made = completion("go</plan> on|act|then</plan>!x", Episode(tuple(turns), 1.0))
    (marked,) = CreditMarker(TurnCredit(method="planner", plan=plan), decode).put([made])
    assert marked.episode is not None
    assert [turn.planned for turn in marked.episode.turns] == PLANS[plan]


def lines(text: str, force: str = "</think>\\boxed{") -> list[str]:
    made = completion(text)
    (marked,) = CreditMarker(TurnCredit(method="rredcot", force=force), decode).put([made])
    assert marked.marks[0].start == 0 and marked.marks[-1].end == len(made.token_ids)
    assert [turn.start for turn in marked.marks[1:]] == [turn.end for turn in marked.marks[:-1]]
    return [decode([made.token_ids[t.start : t.end]])[0] for t in marked.marks]


def test_a_thinking_is_cut_behind_its_lines_and_an_answer_is_not() -> None:
    assert lines("<think>a\nb\n\nc</think>so\n\\boxed{1}\n.") == ["<think>a\n", "b\n\n", "c</think>so\n\\boxed{1}\n."]
    assert lines("<think>a\nb") == ["<think>a\n", "b"]  # never closed: all of it is thinking
    assert lines("a\nb\n</think>c\nd") == ["a\n", "b\n", "</think>c\nd"]  # opened by the prompt
    assert lines("a\nb\n") == ["a\n", "b\n"]
    assert lines("one line") == ["one line"] and lines("") == [""]


def test_without_marks_of_a_thinking_the_forced_text_ends_it() -> None:
    assert lines("a\nb\nThe answer is 1\n", force="The answer is ") == ["a\n", "b\n", "The answer is 1\n"]


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("<think>a\nb</think>1", 1),
        ("\n<think>\na\nb", 2),
        ("a\nb</think>1", 0),
        ("<b>a\nb", 0),
        ("", 0),
        ("<think></think>1", 1),
    ],
)
def test_the_first_value_is_read_behind_what_opens_the_thinking(text: str, opened: int) -> None:
    (marked,) = CreditMarker(TurnCredit(method="rredcot"), decode).put([completion(text)])
    assert [turn.planned for turn in marked.marks] == [opened] + [0] * (len(marked.marks) - 1)
