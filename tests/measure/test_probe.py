"""A probe's forecast is unbiased where it can be, its shares count prompts, and its gate says go or no-go."""

from __future__ import annotations

import json
import random

import pytest

from grpo_cli.jobs.probe import gate_lines, table
from grpo_cli.measure.gate import bars, causes, probe_object
from grpo_cli.measure.probe import ProbeRun
from grpo_cli.measure.probe_result import Probe, summarise
from grpo_cli.recipe.sections.recipe import Gate
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.dead_groups import DeadGroupForecast, agreeing, forecast, group_that_pays
from grpo_verifiers.verdict import Outcome, Verdict

GOLD = "72"


def record(row: str, outcome: Outcome, completion: str = "so 7", cut: bool = False) -> SampleRecord:
    score = None if outcome is Outcome.ERROR else float(outcome is Outcome.RIGHT)
    verdict = Verdict(outcome, score, answer="7", reason="equal" if score else "differs")
    return SampleRecord(
        0, row, row, "Q", completion, {"answer": GOLD}, {"math": verdict}, outcome, score, None, 64 if cut else 20, cut
    )  # fmt: skip


def probe_of(*rights: int, samples: int = 4, group: int = 4, other: Outcome = Outcome.WRONG, **kind: bool) -> Probe:
    records = [
        record(f"row{i}", Outcome.RIGHT if j < right else other, f"so 7, {j}", **kind)  # type: ignore[arg-type]
        for i, right in enumerate(rights)
        for j in range(samples)
    ]
    return summarise(records, samples=samples, group=group, max_tokens=64)


def found_of(probe: Probe) -> ProbeRun:
    """A probe as `sample_probe` hands it back."""
    return ProbeRun(probe, [], "cpu", 1.0)


def test_the_measured_dead_share_is_unbiased_where_the_plug_in_is_not() -> None:
    draw, p, size = random.Random(0), 0.1, 4
    truth = p**size + (1 - p) ** size
    measured, plugged = 0.0, 0.0
    for _ in range(4000):
        right = sum(draw.random() < p for _ in range(4))
        measured += sum(agreeing(4, right, size)) / 4000
        plugged += ((right / 4) ** size + (1 - right / 4) ** size) / 4000
    assert abs(measured - truth) < 0.02 < plugged - truth


@pytest.mark.parametrize(("a", "b"), [(0.5, 1.5), (2, 2), (0.3, 6)])
def test_the_extrapolated_dead_share_is_near_the_truth_for_beta_distributed_prompts(a: float, b: float) -> None:
    draw = random.Random(1)
    many = [draw.betavariate(a, b) for _ in range(4000)]
    counts = [(8, sum(draw.random() < p for _ in range(8))) for p in many[:400]]
    for found in forecast(counts, [16, 32, 64]):
        truth = sum(p**found.group + (1 - p) ** found.group for p in many) / len(many)
        assert found.is_extrapolated and abs(found.dead.mean - truth) < 0.05


def test_dead_groups_never_grow_with_the_group_and_split_into_wrong_and_right() -> None:
    draw = random.Random(2)
    for _ in range(10):
        counts = [(6, draw.choice([0, 0, draw.randint(0, 6), 6])) for _ in range(20)]
        found = forecast(counts, [2, 4, 6, 8, 16, 64])
        dead = [f.dead.mean for f in found]
        assert dead == sorted(dead, reverse=True)
        for one in found:
            assert one.dead.mean == pytest.approx(one.all_wrong + one.all_right)
            assert 0 <= one.dead.low <= one.dead.mean <= one.dead.high <= 1


def test_prompts_that_were_all_wrong_leave_room_for_doubt() -> None:
    (found,) = forecast([(8, 0)] * 64, [8])
    assert found.dead.mean == 1.0 and found.dead.low < 1.0


def test_the_interval_of_the_measured_dead_share_holds_the_truth() -> None:
    draw, held = random.Random(3), 0
    for _ in range(200):
        counts = [(8, sum(draw.random() < p for _ in range(8))) for p in (draw.random() for _ in range(64))]
        (found,) = forecast(counts, [8])
        held += found.dead.low <= 2 / 9 <= found.dead.high  # E[p^8 + (1-p)^8] of a uniform p
    assert held >= 180


def test_the_extrapolated_interval_allows_for_prompts_that_can_never_be_solved() -> None:
    draw, held = random.Random(4), 0
    for _ in range(12):
        rates = [0.0 if draw.random() < 0.5 else draw.random() for _ in range(64)]
        (found,) = forecast([(8, sum(draw.random() < p for _ in range(8))) for p in rates], [32])
        held += found.dead.low <= 0.5 + 0.5 * 2 / 33 <= found.dead.high
    assert held >= 11


def test_the_group_that_pays_is_the_last_worth_doubling() -> None:
    shares = forecast([(8, k) for k in range(9)], [2, 4, 8])
    assert group_that_pays(shares) == shares[-1]
    assert group_that_pays(forecast([(8, 4)] * 9, [2, 4, 8])).group == 4  # type: ignore[union-attr]
    assert group_that_pays(forecast([(8, 0)] * 9, [2, 4, 8])) is None
    assert group_that_pays([]) is None


def test_samples_without_a_verdict_count_as_errors_and_in_no_pass_rate() -> None:
    found = probe_of(2, 2, other=Outcome.ERROR)
    assert found.pass_1.mean == 1.0 and found.outcomes["error"].mean == 0.5
    assert [p.judged for p in found.prompts] == [2, 2]
    assert found.pass_k is None


def test_outcomes_sum_to_one_and_examples_come_from_different_prompts() -> None:
    found = probe_of(0, 1, 3)
    assert sum(share.mean for share in found.outcomes.values()) == pytest.approx(1.0)
    assert [r.row for r in found.examples["wrong"]] == ["row0", "row1"]
    assert found.histogram() == {0: 1, 1: 1, 2: 0, 3: 1, 4: 0}


def test_the_gate_refuses_a_model_that_is_never_right() -> None:
    found = probe_of(0, 0, 0, 0)
    missed = {bar.name for bar in bars(found, Gate()) if not bar.is_met}
    assert missed == {"pass@1", "signal"}
    assert gate_lines(found, Gate())[-1] == "no-go: 2 of 3 bars missed"
    assert "all wrong" in causes(found)[0].text


def test_samples_that_are_one_text_are_the_first_cause_and_no_larger_group_is_advised() -> None:
    same = [record(f"row{i}", Outcome.WRONG) for i in range(4) for _ in range(4)]
    found = summarise(same, samples=4, group=4, max_tokens=64)
    assert (found.distinct, found.one_text) == (1.0, 1.0)
    first, *others = causes(found)
    assert "one wrong text, 1.0 different of 4" in first.text
    assert not any("or a larger group" in cause.hint for cause in [first, *others])
    solved = summarise([record("r", Outcome.RIGHT) for _ in range(4)], samples=4, group=4, max_tokens=64)
    assert (solved.distinct, solved.one_text) == (1.0, 0.0)


def test_the_gate_lets_a_mixed_model_through_and_knows_only_the_bars_that_were_set() -> None:
    found = probe_of(1, 2, 3, 2)
    assert all(bar.is_met for bar in bars(found, Gate()))
    assert gate_lines(found, Gate())[-1] == "go"
    assert [bar.name for bar in bars(found, Gate(truncated=0.1, no_answer=0.2))][-2:] == ["truncated", "no_answer"]
    assert gate_lines(found, None)[-1].startswith("no `gate`")


def test_a_missing_answer_and_a_cut_off_one_are_named_as_causes() -> None:
    said = " ".join(cause.text for cause in causes(probe_of(0, 1, other=Outcome.NO_ANSWER, cut=True)))
    assert "no answer is found in 88%" in said and "cut off at 64 tokens" in said


def test_what_the_gate_keeps_back_is_named_where_nearly_all_groups_are_wrong() -> None:
    kept_back = ("with `alive_by: outcome` `form` cannot be learned from them: name it, or warm up", "name it")
    for rights, is_said in (((0, 0, 0, 0), True), ((0, 0, 2, 2), False)):
        records = [
            record(f"row{i}", Outcome.RIGHT if j < right else Outcome.WRONG)
            for i, right in enumerate(rights)
            for j in range(4)
        ]
        found = summarise(records, samples=4, group=4, max_tokens=64, unlearnable=kept_back)
        assert any("`form` cannot be learned from them" in cause.text for cause in causes(found)) is is_said
    assert not any("cannot be learned" in cause.text for cause in causes(probe_of(0, 0, 0, 0)))


def test_a_probe_that_got_no_verdict_at_all_still_prints() -> None:
    found = found_of(probe_of(0, 0, other=Outcome.ERROR))
    assert any("no prompt has two verdicts" in line for line in table(found, "m", 1.0))
    assert probe_object(found, Gate())["go"] is False


def test_hostile_completions_cannot_steer_the_terminal() -> None:
    records = [record("\x1b[31mrow", Outcome.WRONG, "\x1b]0;title\x07\u202e" + "x" * 100_000) for _ in range(4)]
    found = found_of(summarise(records, samples=4, group=4, max_tokens=64))
    page = "\n".join(table(found, "\x1b[2J", 1.0))
    assert "\x1b" not in page and "\x07" not in page and "\u202e" not in page and len(page) < 5000


def test_the_object_is_plain_json() -> None:
    told = probe_object(found_of(probe_of(1, 2)), Gate(n=2, samples=4))
    read = json.loads(json.dumps(told, allow_nan=False))
    assert read["go"] is True and read["group"] == 4 and read["pass@4"]["n"] == 2
    assert [f["group"] for f in read["forecast"]] == [2, 4, 8, 16, 32, 64]


def test_a_forecast_names_its_signal() -> None:
    (found,) = forecast([(4, 2), (4, 0)], [4])
    assert isinstance(found, DeadGroupForecast) and found.signal == pytest.approx(0.5)


def test_samples_on_which_another_verifier_than_the_primary_fails_are_errors_too() -> None:
    verdicts = {"math": Verdict(Outcome.RIGHT, 1.0), "f": Verdict(Outcome.ERROR, None, None, "timeout")}
    records = [
        SampleRecord(0, "a", "a", "Q", "x", {}, verdicts if n else {"math": verdicts["math"]}, Outcome.RIGHT)
        for n in range(4)
    ]
    found = summarise(records, samples=4, group=4, max_tokens=8)
    assert (found.pass_1.mean, found.outcomes["error"].mean) == (1.0, 0.75)
    said = found.as_json()
    assert said["without_verdict"] == 3 and said["failures"][0]["verifier"] == "f"
