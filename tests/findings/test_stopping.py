from typing import Any

import pytest

from grpo_cli.findings.stopping import LASTING, Deadline, StopRules, seconds
from grpo_cli.recipe.sections.recipe import Stop


def step(entropy: float = 1.0, with_signal: int = 3) -> dict[str, Any]:
    return {"entropy": entropy, "group/count": 4, "group/with_signal": with_signal}


def reasons(rules: StopRules, steps: list[dict[str, Any]]) -> list[int]:
    return [i for i, metrics in enumerate(steps) if rules.see_step(metrics)]


def test_entropy_collapse_stops_only_where_it_was_asked_for_and_lasts() -> None:
    steps = [step(1.0), *[step(0.01)] * LASTING]
    assert reasons(StopRules(Stop(on=["entropy_collapse"])), steps) == [LASTING]
    assert reasons(StopRules(Stop()), steps) == []
    assert reasons(StopRules(Stop(on=["entropy_collapse"])), [*steps[:-1], step(0.9), *steps[1:-1]]) == []


def test_dead_groups_stop_after_they_lasted() -> None:
    steps = [step(with_signal=0)] * LASTING
    assert reasons(StopRules(Stop(on=["dead_groups"])), steps) == [LASTING - 1]
    assert reasons(StopRules(Stop(on=["dead_groups"])), [*steps[:-1], step(), *steps[:-1]]) == []


def test_patience_counts_steps_since_the_best_score() -> None:
    rules = StopRules(Stop(patience=20))
    scores = [(0, 0.2), (10, 0.4), (20, 0.4), (30, 0.39)]
    assert [bool(rules.see_evaluation({"step": s, "eval/pass@1": v})) for s, v in scores] == [False, False, False, True]


def test_state_goes_through_a_checkpoint() -> None:
    rules = StopRules(Stop(on=["dead_groups"]))
    reasons(rules, [step(with_signal=0)] * (LASTING - 1))
    resumed = StopRules(Stop(on=["dead_groups"]))
    resumed.load_state(rules.state())
    assert resumed.see_step(step(with_signal=0))


@pytest.mark.parametrize(("text", "wanted"), [("90", 90), ("90s", 90), ("3h50m", 13800), ("1.5h", 5400), ("1d", 86400)])
def test_deadlines_read_units(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


def test_no_deadline_never_comes() -> None:
    assert not Deadline(None).is_over()
    assert Deadline("0s").is_over()


def test_a_reason_outlives_a_checkpoint_but_not_other_rules() -> None:
    rules = StopRules(Stop(patience=5), reason="no better score")
    again, changed = StopRules(Stop(patience=5)), StopRules(Stop(patience=50))
    for one in (again, changed):
        one.load_state(rules.state())
    assert (again.reason, changed.reason) == ("no better score", None)
