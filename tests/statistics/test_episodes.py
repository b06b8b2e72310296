"""Turns, invalid actions and how episodes end, counted by hand."""

from __future__ import annotations

from dataclasses import replace

from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.episodes import episode_stats, group_lines, in_one_line
from grpo_cli.statistics.step import step_stats
from grpo_verifiers.verdict import error, right


def episode(*valid: bool, truncated: bool = False, judged: bool = True) -> SampleRecord:
    verdict = right() if judged else error("timeout")
    return SampleRecord(
        1, "a", "0/0", "p", "[assistant] x", verdicts={"environment": verdict}, outcome=verdict.outcome,
        reward=verdict.score, tokens=4, truncated=truncated, env_tokens=3,
        turns=[{"text": "n", "observation": "wall" if ok else "", "valid": ok} for ok in valid],
    )  # fmt: skip


def test_shares_are_over_episodes_and_over_turns() -> None:
    samples = [
        episode(True),
        episode(True, False, True),
        episode(False, False, truncated=True),
        episode(True, True, judged=False),
    ]
    assert episode_stats(samples) == {
        "turns/mean": 2.0,
        "turns/max": 3,
        "turns/cut": 0.25,
        "env/invalid": 3 / 8,
        "env/no_verdict": 0.25,
        "env/milestones": 0.0,
        "env/milestones_again": None,
    }
    assert step_stats(samples, 4)["turns/mean"] == 2.0


def reaching(*milestones: str | None) -> SampleRecord:
    turns = [{"text": "n", "valid": True, "milestone": name} for name in milestones]
    return replace(episode(True), turns=turns)


def test_a_milestone_counts_once_an_episode_and_what_comes_again_is_a_share() -> None:
    found = episode_stats([reaching("key", None, "door"), reaching("key", "key", "key"), reaching(None)])
    assert (found["env/milestones"], found["env/milestones_again"]) == (1.0, 0.4)
    apart = episode_stats([reaching("key"), reaching("key")])
    assert (apart["env/milestones"], apart["env/milestones_again"]) == (1.0, 0.0)


def test_samples_that_are_no_episodes_have_no_turns() -> None:
    plain = replace(episode(True), turns=())
    assert episode_stats([plain]) == {}
    assert not any(key.startswith(("turns/", "env/")) for key in step_stats([plain], 1))
    assert episode_stats([plain, episode(True, True)])["turns/mean"] == 2.0


def test_an_episode_whose_outcome_has_another_name_has_no_verdict_where_it_has_no_reward() -> None:
    other = replace(episode(True), verdicts={"outcome": right()})
    assert episode_stats([other, replace(other, reward=None)])["env/no_verdict"] == 0.5


def test_an_episode_is_one_line_on_a_screen() -> None:
    assert in_one_line(episode(True, False)) == "n → wall · n"
    assert in_one_line(replace(episode(True), turns=())) == "[assistant] x"


def test_an_episode_is_shown_turn_by_turn_with_what_each_was_paid() -> None:
    turns = [
        {"text": "a\x1b", "observation": "one\ntwo", "reward": 0.5, "milestone": "key", "valid": True, "row": 0},
        {"text": "b", "observation": "", "reward": 0.0, "valid": False, "row": 1},
    ]
    rows = [{"parent": None, "at": 0, "why": ""}, {"parent": 0, "at": 1, "why": "history"}]
    one = replace(episode(True), turns=turns, rows=rows, endpoint={"requests": 2, "retry": 0}, reward=0.5)
    assert group_lines([one, replace(one, turns=[], rows=(), endpoint={})])[3:] == [
        "",
        "— 1: right, reward 0.500, 4 tokens",
        "  1. a␛",
        "  → one",
        "    two",
        "  (reward 0.500, milestone key)",
        "  2. b",
        "  (not valid, row 1, history)",
        "  endpoint: requests 2",
        "  environment: right ()",
        "",
        "— 2: right, reward 0.500, 4 tokens",
        "  [assistant] x",
        "  environment: right ()",
    ]
