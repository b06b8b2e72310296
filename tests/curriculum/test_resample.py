"""Dynamic sampling on groups that are scripted: `right` of 8 samples, one token each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_cli.curriculum.step_groups import fill
from grpo_cli.reward.group import Group
from grpo_cli.reward.judge import Judgement
from grpo_cli.rollout.engine import Completion
from grpo_cli.train.credit import Method
from grpo_verifiers.shaping import Shaped, build_term
from grpo_verifiers.verdict import Outcome
from tests.builders.loss_bench import recipe


def group(row: int, right: int, of: int = 8) -> Group:
    marks = [i < right for i in range(of)]
    return Group(
        row,
        [Completion([1], [0.0], "stop")] * of,
        ["x"] * of,
        [Judgement({}, Outcome.RIGHT if m else Outcome.WRONG, float(m)) for m in marks],
        [float(m) for m in marks],
    )


def stock(rights: list[int], first_row: int) -> Iterator[Group]:
    yield from (group(first_row + i, right) for i, right in enumerate(rights))


def filled(first: list[int], later: list[int], rounds: int = 8):  # type: ignore[no-untyped-def]
    source = stock(later, len(first))
    return fill(
        [group(i, right) for i, right in enumerate(first)],
        lambda n: [g for _, g in zip(range(n), source, strict=False)],
        Method(recipe().train).has_signal,
        rounds,
    )


def test_a_batch_full_of_signal_is_left_alone() -> None:
    done = filled([1, 4, 7], [])
    assert (done.rounds, len(done.rejected)) == (0, 0)
    assert [g.row for g in done.groups] == [0, 1, 2]


def test_every_group_carries_signal_in_the_end() -> None:
    done = filled([0, 4, 8, 2], [0, 3, 8, 8, 5, 1])
    assert len(done.groups) == 4
    assert all(0 < g.right < 8 for g in done.groups)
    assert [g.row for g in done.groups][:2] == [1, 3]


def test_what_is_thrown_away_is_counted_with_its_tokens() -> None:
    done = filled([0, 4, 8, 2], [0, 3, 8, 8, 5, 1])
    said = done.metrics()
    assert said["resample/thrown"] == len(done.rejected)
    assert said["resample/thrown_tokens"] == 8 * len(done.rejected)
    assert said["resample/thrown_all_wrong"] >= 1
    assert said["resample/thrown_all_right"] >= 1


def test_the_cap_fills_up_with_dead_groups_so_the_size_never_changes() -> None:
    done = filled([0, 0, 0, 5], [0] * 100, rounds=3)
    assert len(done.groups) == 4
    assert done.rounds == 3
    assert done.groups[0].right == 5


def test_no_rounds_means_no_draw() -> None:
    assert filled([0, 4], [4, 4], rounds=0).rounds == 0


def test_a_source_that_runs_dry_ends_the_search() -> None:
    done = filled([0, 0, 4], [0])
    assert (done.rounds, len(done.groups)) == (1, 3)


@pytest.mark.parametrize(("p", "mixed"), [(0.5, 0.992188), (0.9, 0.569533), (0.99, 0.077255)])
def test_share_of_mixed_groups_of_8(p: float, mixed: float) -> None:
    assert 1 - p**8 - (1 - p) ** 8 == pytest.approx(mixed, abs=1e-6)


@pytest.mark.parametrize(("tokens", "penalty"), [(16384, 0.0), (18432, -0.5), (20480, -1.0), (20481, -1.0)])
def test_soft_overlong_penalty(tokens: int, penalty: float) -> None:
    assert build_term("overlong", cache=0.2)(Shaped("", tokens, 20480)) == pytest.approx(penalty)
