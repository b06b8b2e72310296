"""What credit for turns goes by is on every screen: shared states, or milestones reached."""

from __future__ import annotations

from grpo_cli.display.frame.panels import credit
from grpo_cli.display.frame.wide import episodes


def test_shared_states_and_milestones_are_shown_beside_the_turns() -> None:
    assert episodes({"credit/anchor_share": 0.5}) == ""  # no episode was played
    turns = {"turns/mean": 21.4, "env/invalid": 0.02}
    assert "anchors 98%" in episodes({**turns, "credit/anchor_share": 0.98})
    assert (
        credit({"credit/milestone_1/reached": 0.75, "credit/milestone_2/reached": 0.25})
        == "milestones 75% 25%"
    )
    assert credit({}) == "" and episodes(turns).endswith("invalid 2.0%")
