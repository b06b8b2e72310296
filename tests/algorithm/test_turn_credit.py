"""Worked numbers of credit by turns; the whole advantage is the episode's own plus the part computed here."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from grpo_cli.algorithm.turn_credit import (
    Steps,
    cut_values,
    cut_weights,
    gains,
    gigpo,
    kept_cuts,
    milestones,
    reached,
    returns,
    segments,
    subgoals,
)

TWO = [Steps([0.0, 1.0], ["s0", "s1"]), Steps([0.0, 0.0], ["s0", "s2"])]
LOOP = [
    Steps([0.0, 0.0, 0.0, 1.0], ["s0", "s1", "s0", "s2"]),
    Steps([0.0, 1.0], ["s0", "s2"]),
    Steps([0.0, 0.0], ["s0", "s3"]),
]


def whole(episodes: list[Steps], parts: list[list[float]]) -> list[list[float]]:
    """With the episode part: outcome less the mean outcome."""
    outcomes = [math.fsum(e.rewards) for e in episodes]
    return [[o - fmean(outcomes) + p for p in part] for o, part in zip(outcomes, parts, strict=True)]


def near(found: list[list[float]], wanted: list[list[float]]) -> None:
    assert [len(row) for row in found] == [len(row) for row in wanted]
    for got, want in zip(found, wanted, strict=True):
        assert got == pytest.approx(want, abs=1e-6)


def test_both_first_turns_saw_s0_and_are_compared() -> None:
    found = gigpo(TWO)
    near(whole(TWO, found.parts), [[0.975, 0.5], [-0.975, -0.5]])
    assert found.shared / found.turns == 0.5 and found.groups == 1


def test_a_circle_before_success_costs_what_plain_grpo_does_not_see() -> None:
    found = gigpo(LOOP)
    advantages = whole(LOOP, found.parts)
    third = 1 / 3
    near(advantages, [[0.501365, third, 0.59399, third], [0.59399, third], [-1.35601, -2 * third]])
    assert found.shared / found.turns == 0.75
    assert advantages[1][0] - advantages[0][0] == pytest.approx(0.092625)


def test_step_parts_may_be_divided_by_their_deviation() -> None:
    found = gigpo(LOOP, norm="std").parts
    # over the std of the outcomes as well: mean_std of the authors' code
    deviation = math.sqrt(1 / 3) + 1e-6
    own = [third / deviation for third in (1 / 3, 1 / 3, -2 / 3)]
    near(
        [[a + p for p in part] for a, part in zip(own, found, strict=True)],
        [[0.941342, 0.577349, 1.141989, 0.577349], [1.141989, 0.577349], [-2.64797, -1.154699]],
    )


def test_equal_returns_give_no_step_part_however_they_round() -> None:
    alike = [Steps([0.1, 0.2], ["s", "a"]), Steps([0.3, 0.0], ["s", "b"])]
    for norm in ("mean", "std"):
        assert gigpo(alike, gamma=1.0, norm=norm).parts == [[0.0, 0.0], [0.0, 0.0]]
    far = [Steps([1e13 / 7 * reward for reward in episode.rewards], episode.states) for episode in alike]
    assert math.fsum(far[0].rewards) != math.fsum(far[1].rewards)
    assert gigpo(far, gamma=1.0).parts == [[0.0, 0.0], [0.0, 0.0]]


def test_an_episode_without_a_verdict_leaves_every_anchor() -> None:
    lost = Steps([5.0, 5.0], ["s0", "s1"], known=False)
    found = gigpo([*TWO, lost])
    assert found.parts[:2] == gigpo(TWO).parts and found.parts[2] == [0.0, 0.0]
    assert found.turns == 4


def test_states_nearly_alike_share_an_anchor_where_asked() -> None:
    near_states = [Steps([1.0], ["you stand at the red door"]), Steps([0.0], ["you stand at the red doors"])]
    assert gigpo(near_states).shared == 0
    assert gigpo(near_states, similarity=0.95).parts == [[0.5], [-0.5]]


def test_returns_are_discounted_by_turn() -> None:
    assert returns([0.0, 0.0, 1.0], 0.5) == [0.25, 0.5, 1.0]
    assert returns([], 0.5) == []


MILES = [
    Steps([0.0] * 5, milestones=[None, "key", None, None, "goal"]),
    Steps([0.0] * 4, milestones=[None, None, "key", None]),
]


def test_segments_are_compared_with_their_unfinished_tails() -> None:
    parts = milestones(MILES)
    found = [[own + p for p in part] for own, part in zip((0.5, -0.5), parts, strict=True)]
    near(found, [[0.478, 0.578, 0.6325, 0.7225, 0.8225], [-0.612, -0.522, -0.422, -1.1775]])
    assert [segments(len(e), reached(e)) for e in MILES] == [[0, 0, 1, 1, 1], [0, 0, 0, 1]]


def test_a_milestone_counts_once_and_only_in_its_order() -> None:
    twice = Steps([0.0] * 4, milestones=["key", None, "key", "goal"])
    assert reached(twice) == [0, 3]
    assert reached(Steps([0.0] * 3, milestones=["goal", "key", "goal"]), ["key", "goal"]) == [1, 2]
    assert reached(twice, ["key"]) == [0]


def test_milestones_of_an_episode_without_a_verdict_count_for_nothing() -> None:
    lost = Steps([0.0] * 3, milestones=["key", None, None], known=False)
    assert milestones([*MILES, lost]) == [*milestones(MILES), [0.0] * 3]


def test_no_milestone_anywhere_is_no_segment_part() -> None:
    none = [Steps([0.0, 1.0], milestones=[None, None]), Steps([0.0], milestones=[None])]
    assert milestones(none) == [[0.0, 0.0], [0.0]]


def test_each_subgoal_is_compared_with_its_own_column() -> None:
    columns = [(1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
    episodes = [Steps([0.0, first, second]) for first, second in columns]
    found = subgoals(episodes, [[0, 2]] * 4)
    a = 0.866024
    near(found, [[a, a, -a], [a, a, a], [-a, -a, a], [-a, -a, -a]])


def test_a_subgoal_that_one_episode_never_came_to_is_compared_without_it() -> None:
    found = subgoals([Steps([1.0, 1.0]), Steps([0.0, 0.0]), Steps([1.0])], [[0, 1], [0, 1], [0]], norm="mean")
    near(found, [[1 / 3, 0.5], [-2 / 3, -0.5], [1 / 3]])


# Cuts of one answer (RREDCoT): worked numbers; segments of 4, 4 and 2 tokens

LENGTHS = [4, 4, 2]
RIGHT, WRONG = [0.2, 0.25, 0.7], [0.2, 0.25, 0.05]
A = 0.866025


def test_gains_add_up_to_what_the_answer_came_to_less_the_first_value() -> None:
    assert gains(RIGHT, True) == pytest.approx([0.05, 0.45, 0.3]) and math.fsum(gains(RIGHT, True)) == pytest.approx(
        0.8
    )
    assert gains(WRONG, False) == pytest.approx([0.05, -0.2, -0.05])


@pytest.mark.parametrize(
    ("values", "right", "sizes", "advantages"),
    [
        (RIGHT, True, [0.311475, 1.622951, 1.131148], [0.269745, 1.405516, 0.979602]),
        (WRONG, False, [0.181818, 2.0, 0.636364], [-0.157459, -1.73205, -0.551107]),
    ],
)
def test_weights_divide_an_advantage_and_turn_no_sign(
    values: list[float], right: bool, sizes: list[float], advantages: list[float]
) -> None:
    own = A if right else -A
    found = cut_weights(gains(values, right), LENGTHS, own)
    assert found == pytest.approx(sizes, abs=1e-6)
    assert [own * size for size in found] == pytest.approx(advantages, abs=2e-6)
    assert math.fsum(size * n for size, n in zip(found, LENGTHS, strict=True)) / 10 == pytest.approx(1.0)


def test_gains_that_are_alike_leave_the_advantage_as_it_is_to_the_last_bit() -> None:
    for gained in ([0.1, 0.1, 0.1], [0.0, 0.0, 0.0], [0.37], [-0.2, -0.2]):
        assert cut_weights(gained, LENGTHS[: len(gained)], A) == [1.0] * len(gained)


def test_values_are_centred_by_the_number_of_the_segment_and_scaled_by_five_at_most() -> None:
    both = [gains(RIGHT, True), gains(WRONG, False)]
    found = cut_values(both, [LENGTHS] * 2, [A, -A])
    centred = [[0.0, 0.325, 0.175], [0.0, -0.325, -0.175]]
    scale = A / ((4 * 0.325 + 2 * 0.175) / 10)
    assert scale > 5
    near(found, [[5 * c for c in row] for row in centred])
    near(cut_values(both, [LENGTHS] * 2, [0.1, -0.1]), [[c * 0.1 / 0.165 for c in row] for row in centred])
    # an answer without advantage, or alone with its number of segments, gets nothing
    near(cut_values([[0.3, 0.2], [0.5]], [[1, 1], [2]], [0.0, 0.3]), [[0.0, 0.0], [0.3]])
    near(cut_values([[0.3, 0.2]], [[1, 1]], [1.0]), [[0.0, 0.0]])


def test_the_cut_with_the_least_entropy_behind_it_goes_first() -> None:
    assert kept_cuts([3, 7, 9, 14], [0.2, 1.1, 0.7, 1.5], 3) == [7, 14]
    assert kept_cuts([3, 7], [0.2, 1.1], 3) == [3, 7] and kept_cuts([3, 7], [0.2, 1.1], 1) == []
    assert kept_cuts([3, 7, 9], [0.5, 0.5, 0.5], 3) == [7, 9]
