"""`train.credit` from groups of episodes to advantages of tokens, records and signal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from grpo_cli.curriculum.ledger import Ledger, RowOutcome
from grpo_cli.data.rows import Row
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion, Episode, Turn
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import has_signal
from grpo_cli.train.credit import Method
from grpo_cli.train.cuts import value_metrics
from grpo_cli.train.loop import pulls_of
from grpo_verifiers.verdict import Outcome, Verdict
from tests.train.test_credit import recipe

NAN = math.nan
LENGTH = 2
"""Tokens of a turn; one of the environment's stands between two."""


def episode(*turns: tuple[str, float] | tuple[str, float, str]) -> Completion:
    """Of (state, reward[, milestone]) a turn."""
    made = [
        Turn(3 * i, 3 * i + LENGTH, state=state, reward=reward, milestone=more[0] if more else None)
        for i, (state, reward, *more) in enumerate(turns)
    ]
    length = made[-1].end
    return Completion([7] * length, [-0.5] * length, "stop", episode=Episode(tuple(made), None))


def group(*episodes: Completion, rewards: list[float] | None = None) -> Group:
    """Judged by the sum of the steps unless other rewards are said; NaN is no verdict."""
    paid = rewards or [math.fsum(t.reward for t in c.episode.turns) for c in episodes if c.episode]
    judged = [
        Judgement({}, Outcome.ERROR, None)
        if math.isnan(r)
        else Judgement(
            {"math": Verdict(Outcome.RIGHT if r >= 1 else Outcome.WRONG, r)},
            Outcome.RIGHT if r >= 1 else Outcome.WRONG,
            r,
        )
        for r in paid
    ]
    return Group(0, list(episodes), ["x"] * len(paid), judged, paid, [1])


def method(credit: Any = "gigpo", group: int = 2, **train: Any) -> Method:
    return Method.of(recipe(group, train={"credit": credit, "scale": "none", **train}))


TWO = group(episode(("s0", 0.0), ("s1", 1.0)), episode(("s0", 0.0), ("s2", 0.0)))


def test_every_token_of_a_turn_gets_its_advantage_and_the_environment_s_none() -> None:
    credit = method().credit([TWO])
    assert credit.A_PGT is not None
    assert credit.A_PGT[0].tolist() == [
        pytest.approx([0.975, 0.975, 0, 0.5, 0.5]),
        pytest.approx([-0.975, -0.975, 0, -0.5, -0.5]),
    ]
    assert credit.A_PG[0].tolist() == pytest.approx([0.7375, -0.7375])
    assert credit.metrics["credit/anchor_share"] == 0.5 and credit.metrics["credit/anchor_size"] == 2
    assert credit.metrics["credit/step_share"] == pytest.approx(0.475 / 2 / 0.5)


def test_a_row_is_as_wide_as_its_rank_pads_it() -> None:
    credit = method().credit([TWO])
    assert credit.rows(slice(1, 2), 8).shape == (1, 8)
    assert credit.rows(slice(0, 2), 5)[0].tolist() == pytest.approx([0.975, 0.975, 0, 0.5, 0.5])


def test_equal_outcomes_with_unequal_steps_are_signal() -> None:
    late = group(episode(("a", 0.0), ("a", 1.0)), episode(("a", 1.0), ("b", 0.0)))
    assert not Method.of(recipe(2)).has_signal(late)
    assert method().has_signal(late) and method().credit([late]).signal_P.tolist() == [True]
    none = group(episode(("a", 0.0), ("b", 1.0)), episode(("a", 0.0), ("c", 1.0)))
    assert not method().has_signal(none)


def test_the_signal_of_a_record_is_that_of_its_turns() -> None:
    # the turns of each sample cancel out
    even = group(episode(("a", 1.0), ("b", 0.0)), episode(("b", 1.0), ("a", 0.0)))
    credit = method({"method": "gigpo", "gamma": 1.0}).credit([even])
    assert credit.A_PGT is not None and credit.signal_P.tolist() == [True]
    records = even.records(1, 0, Row("r", "p", "p", {}), credit.A_PG[0].tolist(), credit.A_PGT[0].tolist())
    assert [r.advantage for r in records] == [0.0, 0.0] and has_signal(records)


def test_without_a_verdict_an_episode_is_worth_nothing_to_itself_and_others() -> None:
    lost = episode(("s0", 5.0), ("s1", 5.0))
    with_lost = group(*TWO.completions, lost, rewards=[*TWO.rewards, NAN])
    credit = method(group=3).credit([with_lost])
    assert credit.A_PGT is not None and not credit.A_PGT[0, 2].any()
    alone = method().credit([TWO])
    assert alone.A_PGT is not None and credit.A_PGT[0, :2].tolist() == alone.A_PGT[0].tolist()


def test_what_an_episode_is_paid_beside_its_steps_stands_at_its_last_turn() -> None:
    scored = group(*(episode(("s0", 0.0), ("s1", 0.0)) for _ in range(2)), rewards=[1.0, 0.0])
    credit = method().credit([scored])
    assert credit.A_PGT is not None
    assert credit.A_PGT[0, 0].tolist() == pytest.approx([0.975, 0.975, 0, 1.0, 1.0])


def test_a_placebo_does_not_see_the_steps() -> None:
    made = method(control="random").credit([group(*TWO.completions, rewards=[0.0, 0.0])])
    assert made.A_PGT is not None and not made.A_PGT.any()


def test_an_episode_may_count_as_often_as_it_has_turns() -> None:
    loop = group(
        episode(("s0", 0.0), ("s1", 0.0), ("s0", 0.0), ("s2", 1.0)),
        episode(("s0", 0.0), ("s2", 1.0)),
        episode(("s0", 0.0), ("s3", 0.0)),
    )
    made = method({"method": "gigpo", "over": "steps"}, group=3).credit([loop])
    assert made.A_PGT is not None
    firsts = [made.A_PGT[0, i, [0, 3, 6, 9][:n]].tolist() for i, n in enumerate((4, 2, 2))]
    assert firsts == [
        pytest.approx([0.418031, 0.25, 0.510656, 0.25], abs=1e-6),
        pytest.approx([0.510656, 0.25], abs=1e-6),
        pytest.approx([-1.439344, -0.75], abs=1e-6),
    ]


def test_scale_divides_the_part_of_the_turns_too() -> None:
    made = method(scale="group").credit([TWO])
    assert made.A_PGT is not None
    # two numbers are .707107 of their deviation off their mean, whatever they are
    assert made.A_PGT[0, 0, [0, 3]].tolist() == pytest.approx([2 * 0.5**0.5, 0.5**0.5], abs=2e-6)


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
@pytest.mark.parametrize(("scale", "ratio"), [("group", 0.977955), ("none", 0.781969)])
def test_how_much_turns_count_does_not_follow_the_unit_of_the_reward(unit: float, scale: str, ratio: float) -> None:
    circle = group(
        episode(("s0", 0.0), ("s1", 0.0), ("s0", 0.0), ("s2", unit)),
        episode(("s0", 0.0), ("s2", unit)),
        episode(("s0", 0.0), ("s3", 0.0)),
    )
    made = method(scale=scale, group=3).credit([circle])
    assert made.A_PGT is not None
    # the last turn's state has no other fate: its advantage is the episode's own
    third, last = made.A_PGT[0, 0, [6, 9]].tolist()
    assert (third - last) / last == pytest.approx(ratio, abs=5e-4)


def test_pruning_ranks_whole_rows_by_the_size_of_their_tokens() -> None:
    rows = group(
        episode(("a", 0.0), ("b", 1.0)),
        episode(("a", 1.0), ("c", 0.0)),
        episode(("d", 0.5), ("e", 0.0)),
        episode(("f", 0.5), ("g", 0.0)),
    )
    made = method(prune={"keep": 2}, group=4).credit([rows])
    assert made.kept_PG.tolist() == [[False, True, True, False]]
    assert made.A_PGT is not None and not made.A_PGT[0, [0, 3]].any()


KEY = group(
    episode(("", 0.0), ("", 0.0, "key"), ("", 0.0), ("", 0.0), ("", 1.0, "goal")),
    episode(("", 0.0), ("", 0.0), ("", 0.0, "key"), ("", 0.0)),
)


def test_milestones_are_counted_and_farming_is_seen() -> None:
    made = method("milestones").credit([KEY])
    assert made.A_PGT is not None
    assert made.A_PGT[0, 0, ::3].tolist() == pytest.approx([0.478, 0.578, 0.6325, 0.7225, 0.8225])
    assert made.A_PGT[0, 1, :12:3].tolist() == pytest.approx([-0.612, -0.522, -0.422, -1.1775])
    assert made.metrics["credit/milestone_1/reached"] == 1.0
    assert made.metrics["credit/milestone_2/reached"] == 0.5
    assert made.metrics["credit/milestone_without_success"] == 0.5


def test_that_no_episode_reaches_a_milestone_is_a_number_too() -> None:
    nothing = group(episode(("", 0.0), ("", 1.0)), episode(("", 0.0)))
    assert method("milestones").credit([nothing]).metrics["credit/milestone_1/reached"] == 0.0


def long_episode(row: int, *turns: tuple[int, str, float]) -> Completion:
    """Of (tokens, state, reward) a turn, five tokens of the environment's between two."""
    made, at = [], 0
    for tokens, state, paid in turns:
        made.append(Turn(at, at + tokens, state=state, reward=paid))
        at += tokens + 5
    length = made[-1].end
    return Completion([row] * length, [-0.5] * length, "stop", episode=Episode(tuple(made), None))


def test_turns_of_both_signs_pull_though_their_mean_is_0() -> None:
    # each turn 1.5 above or below its state's mean, the outcomes equal
    even = group(long_episode(1, (10, "a", 3.0), (10, "b", 0.0)), long_episode(2, (10, "b", 3.0), (10, "a", 0.0)))
    credit = method({"method": "gigpo", "gamma": 1.0, "norm": "mean"}).credit([even])
    assert credit.A_PGT is not None and credit.A_PG.tolist() == [[0.0, 0.0]]
    assert {round(a, 6) for a in credit.A_PGT.flatten().tolist()} == {0.0, 1.5, -1.5}
    assert pulls_of([even], credit, leaves_cut=False) == {0: 60.0}  # 30 a sample
    plain = replace(group(episode(("a", 1.0)), episode(("b", 0.0))), row=1)
    whole = method({"method": "gigpo", "norm": "mean"}).credit([even, plain])
    pulls = pulls_of([even, plain], whole, leaves_cut=False)
    ledger = Ledger(["even", "plain"])
    ledger.update(0, [RowOutcome(row, 1, 2, True, pull) for row, pull in pulls.items()])
    assert ledger.metrics()["rows/top_share"] == pytest.approx(60 / (60 + 2 * 0.5 * LENGTH))


def test_what_an_environment_says_and_cut_answers_pull_nothing() -> None:
    two = group(long_episode(1, (4, "", 1.0), (4, "", 0.0)), long_episode(2, (3, "", 0.0)))
    credit = Method.of(recipe(2, train={"scale": "none"})).credit([two])
    assert credit.A_PGT is None
    assert pulls_of([two], credit, leaves_cut=False) == {0: 0.5 * 8 + 0.5 * 3}
    cut = replace(two, completions=[two.completions[0], replace(two.completions[1], finish="length")])
    assert pulls_of([cut], credit, leaves_cut=True) == {0: 0.5 * 8}
    # a set of fewer rows than a step asks for
    twice = Method.of(recipe(2, train={"scale": "none"})).credit([two, two])
    assert pulls_of([two, two], twice, leaves_cut=False) == {0: 2 * (0.5 * 8 + 0.5 * 3)}


def test_a_weight_of_zero_is_plain_grpo() -> None:
    plain = Method.of(recipe(2, train={"scale": "none"})).credit([KEY])
    for name in ("gigpo", "milestones"):
        made = method({"method": name, "weight": 0}).credit([KEY])
        assert torch.allclose(made.A_PG, plain.A_PG)


def test_a_record_of_turns_is_read_back_and_a_column_of_that_name_is_a_column() -> None:
    credit = method().credit([TWO])
    assert credit.A_PGT is not None
    row = Row("r", "p", "p", {"turns": 3})
    record = TWO.records(1, 0, row, credit.A_PG[0].tolist(), credit.A_PGT[0].tolist())[0]
    assert [turn["advantage"] for turn in record.turns] == pytest.approx([0.975, 0.5])
    assert (record.tokens, record.env_tokens) == (4, 1)
    line = record.as_json()
    assert line["fields"] == {"turns": 3}
    assert SampleRecord.from_json(line).as_json() == line
    plain = SampleRecord(1, "r", "g", "p", "c", fields={"turns": 3})
    assert plain.as_json()["turns"] == 3 and SampleRecord.from_json(plain.as_json()).fields == {"turns": 3}


@pytest.mark.parametrize("columns", [{}, {"values": [0.5]}, {"values": [0.5], "step": 1}, {"values": "x"}])
@pytest.mark.parametrize("values", [(), (0.25,)])
def test_values_are_read_back_and_a_column_of_that_name_is_a_column(
    columns: dict[str, object], values: tuple[float, ...]
) -> None:
    record = SampleRecord(1, "r", "g", "p", "c", fields=columns, values=values)
    back = SampleRecord.from_json(record.as_json())
    assert (back.fields, tuple(back.values)) == (columns, values)
    assert ("fields" in record.as_json()) == bool(values or "step" in columns)


def test_plans_are_paid_by_the_outcome_and_acts_by_their_subgoal() -> None:
    columns = [(1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
    episodes = []
    for paid in columns:
        made = episode(*(("", one) for one in paid))
        assert made.episode is not None
        turns = tuple(replace(turn, planned=1) for turn in made.episode.turns)
        episodes.append(replace(made, episode=replace(made.episode, turns=turns)))
    sums = [math.fsum(paid) for paid in columns]
    credit = method("planner", group=4, scale="group").credit([group(*episodes, rewards=sums)])
    assert credit.A_PGT is not None
    a, own = 0.866024, [0.0, 1.224745, 0.0, -1.224745]
    acts = [(a, -a), (a, a), (-a, a), (-a, -a)]
    for row, outcome, (first, second) in zip(credit.A_PGT[0].tolist(), own, acts, strict=True):
        assert row == pytest.approx([outcome, first, 0, outcome, second], abs=2e-6)
    assert credit.metrics["credit/subgoals"] == 2.0


def test_marked_parts_of_an_answer_are_credited_as_turns() -> None:
    parts = [(Turn(0, 2, milestone="sum"), Turn(2, 5)), (Turn(0, 5),)]
    answers = [Completion([7] * 5, [-0.5] * 5, "stop", marks=marks) for marks in parts]
    credit = method("milestones").credit([group(*answers, rewards=[1.0, 0.0])])
    assert credit.A_PGT is not None
    assert credit.A_PGT[0].tolist() == [pytest.approx([1.0, 1.0, 0.5, 0.5, 0.5]), pytest.approx([-1.0] * 5)]
    assert credit.metrics["credit/milestone_1/reached"] == 0.5


def cut(values: list[float | None], lengths: tuple[int, ...] = (4, 4, 2)) -> Completion:
    """An answer of segments with these values."""
    ends = [sum(lengths[: k + 1]) for k in range(len(lengths))]
    marks = [Turn(end - n, end, value=v) for end, n, v in zip(ends, lengths, values, strict=True)]
    return Completion([7] * ends[-1], [-0.5] * ends[-1], "stop", marks=tuple(marks))


def apart(*completions: Completion, rewards: list[float]) -> Group:
    return group(*completions, rewards=rewards)


def test_an_answers_own_advantage_is_divided_among_its_segments() -> None:
    two = apart(cut([0.2, 0.25, 0.7]), cut([0.2, 0.25, 0.05]), rewards=[1.0, 0.0])
    made = method("rredcot", scale="group").credit([two])
    assert made.A_PGT is not None
    own = math.sqrt(0.5)
    for row, sizes, sign in ((0, [0.311475, 1.622951, 1.131148], 1), (1, [0.181818, 2.0, 0.636364], -1)):
        wanted = [sign * own * s for s, n in zip(sizes, (4, 4, 2), strict=True) for _ in range(n)]
        assert made.A_PGT[0, row].tolist() == pytest.approx(wanted, abs=2e-6)
    assert made.A_PG[0].tolist() == pytest.approx([own, -own])
    assert value_metrics([two])["credit/start_value"] == 0.2 and value_metrics([two])["credit/segments"] == 3
    assert value_metrics([two])["credit/value_correlation"] == pytest.approx(1.0)


def test_values_may_stand_in_place_of_the_answers_own_advantage() -> None:
    two = apart(cut([0.2, 0.25, 0.7]), cut([0.2, 0.25, 0.05]), rewards=[1.0, 0.0])
    made = method({"method": "rredcot", "use": "value"}).credit([two])
    assert made.A_PGT is not None
    scale = 0.5 / 0.165
    wanted = [scale * v for v, n in zip((0.0, 0.325, 0.175), (4, 4, 2), strict=True) for _ in range(n)]
    assert made.A_PGT[0, 0].tolist() == pytest.approx(wanted) and made.A_PGT[0, 1].tolist() == pytest.approx(
        [-a for a in wanted]
    )


def test_without_values_or_with_one_segment_it_is_the_answers_own_advantage_to_the_last_bit() -> None:
    lengths = [(4, 4, 2), (10,)]
    for values in ([None, None, None], [0.3]):
        two = apart(*(cut(values, lengths[len(values) == 1]) for _ in range(2)), rewards=[1.0, 0.0])
        for use in ("weight", "value") if values[0] is None else ("weight",):
            found = method({"method": "rredcot", "use": use}).credit([two])
            plain = Method.of(recipe(2, train={"scale": "none"})).credit([two])
            assert found.A_PGT is not None
            assert torch.equal(found.A_PGT, plain.A_PG[..., None].expand(1, 2, 10))
    # a group of equal outcomes has no signal, whatever its segments gained
    dead = apart(cut([0.2, 0.9, 0.1]), cut([0.2, 0.25, 0.05]), rewards=[0.0, 0.0])
    assert not method("rredcot").credit([dead]).signal_P.any()


def test_a_sample_without_a_verdict_gains_nothing_and_is_in_no_mean() -> None:
    three = apart(cut([0.2, 0.25, 0.7]), cut([0.2, 0.25, 0.05]), cut([0.9, 0.1, 0.9]), rewards=[1.0, 0.0, NAN])
    two = apart(cut([0.2, 0.25, 0.7]), cut([0.2, 0.25, 0.05]), rewards=[1.0, 0.0])
    for use in ("weight", "value"):
        found = method({"method": "rredcot", "use": use}, 3).credit([three]).A_PGT
        alone = method({"method": "rredcot", "use": use}).credit([two]).A_PGT
        assert found is not None and alone is not None
        assert torch.equal(found[:, :2], alone) and not found[0, 2].any()
