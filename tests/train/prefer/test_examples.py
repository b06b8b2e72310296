"""The order in which pairs are learned, KTO's neighbours and weights, and the sizes of updates."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from grpo_cli.recipe.sections.recipe import Prefer
from grpo_cli.train.prefer.learn import Update, kto_weights, update_of
from grpo_cli.train.prefer.pairs import LabelledExample, PairExample, in_order, keep_rows_apart

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def pairs(n: int) -> list[PairExample]:
    return [PairExample(i, [i], [1], [2]) for i in range(n)]


def test_epochs_follow_each_other_each_in_an_order_of_its_own() -> None:
    found = in_order(pairs(10), 3, 5, seed=1)
    assert len(found) == 30
    epochs = [[one.row for one in found[i : i + 10]] for i in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs) and len(set(map(tuple, epochs))) == 3
    assert found == in_order(pairs(10), 3, 5, seed=1) != in_order(pairs(10), 3, 5, seed=2)


@pytest.mark.parametrize(("n", "epochs", "batch", "kept"), [(10, 1, 4, 8), (10, 2, 4, 20), (3, 1, 8, 3), (3, 2, 8, 6)])
def test_what_does_not_fill_a_batch_is_left_out_but_for_the_only_one(
    n: int, epochs: int, batch: int, kept: int
) -> None:
    assert len(in_order(pairs(n), epochs, batch, seed=0)) == kept


def collisions(examples: list[LabelledExample], batch: int) -> int:
    windows = [examples[i : i + batch] for i in range(0, len(examples), batch)]
    return sum(w[i].row == w[i - 1].row for w in windows for i in range(len(w)) if len(w) > 1)


def test_no_prompt_is_scored_with_an_answer_to_itself_where_rows_allow_it() -> None:
    draw, before = random.Random(3), 0
    for _ in range(200):
        rows, each, batch = draw.randint(4, 12), draw.randint(2, 8), draw.choice([2, 4, 8, 16])
        examples = [LabelledExample(r, [r], [r, i], i % 2 == 0) for r in range(rows) for i in range(each)]
        draw.shuffle(examples)
        examples = examples[: len(examples) // batch * batch]
        apart = keep_rows_apart(examples, batch)
        assert Counter(map(repr, apart)) == Counter(map(repr, examples))
        before += collisions(examples, batch)
        # the very last ones may be left with their own kind
        assert collisions(apart[:-batch], batch) <= collisions(examples, batch)
        assert collisions(apart[: len(apart) * 2 // 3 // batch * batch], batch) == 0
    assert before > 200


@pytest.mark.parametrize(("right", "wrong"), [(1, 1), (3, 1), (1, 9), (4, 3), (100, 99), (1, 1000)])
def test_the_weights_of_kto_bring_right_to_wrong_between_1_and_4_thirds(right: int, wrong: int) -> None:
    desirable, undesirable = kto_weights(right, wrong)
    assert 1 - 1e-9 <= right * desirable / (wrong * undesirable) <= 4 / 3 + 1e-9
    assert min(desirable, undesirable) == 1


def test_updates_are_whole_batches_in_equal_micro_batches() -> None:
    assert update_of(Prefer(batch=8), 26, 100, CPU) == Update(8, 1, 3)
    assert update_of(Prefer(batch=8, micro_batch=2), 26, 100, CPU) == Update(2, 4, 3)
    assert update_of(Prefer(batch=32), 5, 100, CPU) == Update(5, 1, 1)
    assert update_of(Prefer(batch=32), 64, 4096, CUDA) == Update(4, 8, 2)
    assert update_of(Prefer(batch=32), 64, 100_000, CUDA) == Update(1, 32, 2)
    assert update_of(Prefer(loss="kto", batch=32), 64, 100_000, CUDA) == Update(2, 16, 2)
    assert update_of(Prefer(loss="kto", batch=32, micro_batch=2), 7, 10, CPU) == Update(7, 1, 1)
