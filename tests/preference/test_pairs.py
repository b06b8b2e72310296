"""Pairs of judged samples: the worked example, a thousand random groups, and what is no pair."""

from __future__ import annotations

import random
from itertools import product

import pytest

from grpo_cli.preference.pairs import AnswerPair, NoPair, PairLimits, RowPairs, answers_of, make_pairs, pairs_of_row
from grpo_cli.run.records import SampleRecord
from grpo_verifiers.verdict import Outcome

R, W, E = Outcome.RIGHT, Outcome.WRONG, Outcome.ERROR
JUDGED = {R, W, Outcome.NO_ANSWER, Outcome.OVER_LIMIT}


def record(text: str, outcome: Outcome | None, tokens: int = 10, cut: bool = False, row: str = "r") -> SampleRecord:
    return SampleRecord(1, row, "1/0", "ask", text, outcome=outcome, tokens=tokens, truncated=cut)


def texts(found: RowPairs) -> list[tuple[str, str]]:
    return [(pair.chosen.text, pair.rejected.text) for pair in found.pairs]


def one_row(*samples: SampleRecord, limits: PairLimits | None = None) -> RowPairs:
    return pairs_of_row("r", samples, limits or PairLimits())


def test_the_worked_example() -> None:
    samples = [
        record("A", R, 10),
        record("B", W, 11),
        record("A", R, 10),
        record("C", R, 30, cut=True),
        record("D", W, 20),
        record("E", E, 12),
        record("F", R, 18),
        record("G", W, 9),
    ]
    assert texts(one_row(*samples)) == [("A", "B"), ("A", "G"), ("F", "D")]


def brute(samples: list[SampleRecord], limits: PairLimits) -> list[tuple[int, int]]:
    """The rule said once more, index by index, without any of the room's functions."""
    first = [
        i
        for i, s in enumerate(samples)
        if not s.truncated
        and s.outcome in JUDGED
        and s.completion not in {o.completion for o in samples[:i] if not o.truncated and o.outcome in JUDGED}
        and len(
            {
                o.outcome is R
                for o in samples
                if o.completion == s.completion and not o.truncated and o.outcome in JUDGED
            }
        )
        == 1
    ]
    ranked = sorted(
        (abs(samples[a].tokens - samples[b].tokens) / max(samples[a].tokens, samples[b].tokens), a, b)
        for a, b in product(first, first)
        if samples[a].outcome is R and samples[b].outcome is not R
    )
    taken: list[tuple[int, int]] = []
    for gap, a, b in ranked:
        flat = [place for pair in taken for place in pair]
        room = flat.count(a) < limits.a_sample and flat.count(b) < limits.a_sample
        if gap <= limits.gap and room and len(taken) < limits.a_row:
            taken.append((a, b))
    return taken


def test_a_thousand_random_groups_keep_the_rule() -> None:
    draw, paired = random.Random(7), 0
    for _ in range(1000):
        limits = PairLimits(draw.randint(1, 6), draw.randint(1, 3), draw.choice([0.0, 0.1, 0.2, 0.5]))
        samples = [
            record(
                draw.choice("abcdefghijklmnop"),
                draw.choice([*Outcome, R, W]),
                draw.randint(1, 30),
                cut=draw.random() < 0.2,
            )
            for _ in range(draw.randint(1, 24))
        ]
        found = pairs_of_row("r", samples, limits)
        assert [(p.chosen.place, p.rejected.place) for p in found.pairs] == brute(samples, limits)
        assert (found.cause is None) == bool(found.pairs)
        for pair in found.pairs:
            chosen, rejected = samples[pair.chosen.place], samples[pair.rejected.place]
            assert chosen.outcome is R and rejected.outcome in JUDGED - {R}
            assert not chosen.truncated and not rejected.truncated
            assert chosen.completion != rejected.completion
        paired += bool(found.pairs)
    assert 300 < paired < 1000  # the draw is of both kinds


@pytest.mark.parametrize(
    ("samples", "cause"),
    [
        ([record("a", E), record("b", None)], NoPair.NO_VERDICT),
        ([record("a", Outcome.OVER_LIMIT), record("b", E)], NoPair.NO_RIGHT),
        ([record("a", R, cut=True), record("b", W, cut=True)], NoPair.CUT),
        ([record("a", W), record("b", Outcome.NO_ANSWER)], NoPair.NO_RIGHT),
        ([record("a", R), record("b", R), record("c", W, cut=True)], NoPair.NO_WRONG),
        ([record("a", R, 10), record("b", W, 20)], NoPair.LENGTHS),
        ([record("a", R), record("a", W)], NoPair.BOTH),
    ],
)
def test_a_row_without_pairs_says_why(samples: list[SampleRecord], cause: NoPair) -> None:
    assert one_row(*samples).cause is cause


def test_a_text_that_was_called_both_is_neither_winner_nor_loser() -> None:
    answers = answers_of([record("a", R), record("b", W), record("a", W), record("c", R)])
    assert [(one.text, one.is_right) for one in answers] == [("b", False), ("c", True)]


def test_lengths_are_characters_where_a_sample_does_not_say_its_tokens() -> None:
    assert texts(one_row(record("a" * 10, R, 0), record("b" * 11, W, 99))) == [("a" * 10, "b" * 11)]


def test_a_gap_is_measured_against_the_longer_one() -> None:
    (ten, eight) = answers_of([record("a", R, 10), record("b", W, 8)])
    assert AnswerPair(ten, eight).gap == pytest.approx(0.2)
    assert len(one_row(record("a", R, 10), record("b", W, 8)).pairs) == 1


def test_samples_of_a_row_come_together_from_all_steps_and_rows_keep_their_order() -> None:
    samples = [record("a", R, row="x"), record("q", W, row="y"), record("b", W, row="x"), record("p", R, row="y")]
    found = make_pairs(samples, PairLimits())
    assert [(one.row, texts(one)) for one in found] == [("x", [("a", "b")]), ("y", [("p", "q")])]


def test_the_placebo_shuffles_labels_inside_a_row_and_keeps_their_number() -> None:
    samples = [record(f"{i}", R if i < 4 else W, row=f"row{i % 3}") for i in range(24)]
    plain, placebo = make_pairs(samples, PairLimits()), make_pairs(samples, PairLimits(), placebo="3")
    for own, shuffled in zip(plain, placebo, strict=True):
        assert sum(a.is_right for a in own.answers) == sum(a.is_right for a in shuffled.answers)
        assert [a.text for a in own.answers] == [a.text for a in shuffled.answers]
    assert [texts(one) for one in plain] != [texts(one) for one in placebo]
    assert [texts(one) for one in placebo] == [texts(one) for one in make_pairs(samples, PairLimits(), placebo="3")]
