"""What credit for turns goes by is on every screen: shared states, or milestones reached."""

from __future__ import annotations

from grpo_cli.display import plain
from grpo_cli.display.frame.panels import credit
from grpo_cli.display.frame.wide import completions
from tests.builders.display_state import INFO, run_state, step_metrics


def lengths(metrics: dict[str, float]) -> str:
    """The line with the lengths of right and wrong samples in the wide frame."""
    state = run_state()
    state.step(step_metrics(4) | {"length/right": 8, "length/wrong": 9} | metrics, None)
    return completions(state.snapshot(0.0), 120).lines[2].plain.partition("│")[0].rstrip()


def test_shared_states_and_milestones_are_shown_beside_the_turns() -> None:
    assert "anchors" not in lengths({"credit/anchor_share": 0.5})  # no episode was played
    turns = {"turns/mean": 21.4, "env/invalid": 0.02}
    assert lengths({**turns, "credit/anchor_share": 0.98}).endswith("turns 21.4 anchors 98%")
    assert credit({"credit/milestone_1/reached": 0.75, "credit/milestone_2/reached": 0.25}) == "milestones 75% 25%"
    assert credit({}) == "" and lengths(turns).endswith("turns 21.4 invalid 2.0%")


def test_what_the_endpoint_counted_of_episodes_stands_below_the_turns() -> None:
    counted = {
        "endpoint/rows": 1.25,
        "endpoint/requests": 4.0,
        "endpoint/fork/history": 0.25,
        "endpoint/fork/tools": 0.05,
    }
    state = run_state()
    state.step(step_metrics(4) | {"turns/mean": 4.0, "env/invalid": 0.0, "env/no_verdict": 0.1, **counted}, None)
    lines = [line.plain for line in completions(state.snapshot(0.0), 120).lines]
    assert any("rows 1.25  forks 7.5%  lost 10%" in line for line in lines), lines


def test_a_step_whose_line_is_full_keeps_them_before_the_turns() -> None:
    full = {"turns/mean": 6.0, "env/invalid": 0.93, "think": 0.5}
    for name, word in (("credit/anchor_share", "anchors 0%"), ("credit/milestone_1/reached", "milestone 1 0%")):
        line = plain.step_line(step_metrics(3) | full | {name: 0.0}, INFO)
        assert word in line and "think" not in line, line
