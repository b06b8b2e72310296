"""A file of pairs as token ids: the ones that were sampled, both halves for KTO, and what does not fit the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grpo_cli.data.rows import Row, load_rows
from grpo_cli.errors import DataError
from grpo_cli.policy.model import load_model
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe, Source
from grpo_cli.train.prefer.learn import PairLearner
from grpo_cli.train.prefer.pairs import PairSet
from grpo_cli.train.updates import NonFinite
from tests.loop.recipes import small_recipe

Given = tuple[Recipe, Policy, list[Row]]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    recipe = load(str(small_recipe(tmp_path)), ["train.method=prefer", "prefer.batch=4"])
    policy = load_model(recipe.model, device=torch.device("cpu"), seed=1)
    return recipe, policy, load_rows(recipe.data, "train")


def pair_set(
    folder: Path, given: Given, *pairs: tuple[int, str, str], stop: tuple[str, ...] = (), placebo: int | None = None
) -> tuple[PairSet, list[str]]:
    _, policy, rows = given
    lines = [{"row": rows[i].id, "prompt": rows[i].prompt, "chosen": one, "rejected": other} for i, one, other in pairs]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said: list[str] = []
    source = Source.model_validate({"from": "p.jsonl"})
    return PairSet.of_file(source, folder, policy, rows, [], stop, said.append, placebo), said


def test_an_answer_is_what_is_read_and_the_token_that_ends_it_where_no_stop_text_does(
    tmp_path: Path, given: Given
) -> None:
    _, policy, rows = given
    found, said = pair_set(tmp_path, given, (2, "1 2", "3"), (2, "1 2", ""), (0, "7.", "8"), stop=(".",))
    assert said == [] and [one.row for one in found.pairs] == [2, 2, 0]
    first, second, third = found.pairs
    assert first.prompt_ids == policy.encode(rows[2]) and first.chosen_ids == second.chosen_ids
    assert policy.decode([first.chosen_ids, first.rejected_ids, third.chosen_ids]) == ["1 2", "3", "7."]
    assert first.chosen_ids[-1] in policy.end_ids and third.chosen_ids[-1] not in policy.end_ids
    assert second.rejected_ids == [policy.tokenizer.eos_token_id]
    summary = found.summary
    assert (summary.pairs, summary.rows_with_pairs, summary.right, summary.wrong) == (3, 2, 2, 3)


def test_kto_takes_both_halves_and_a_text_of_several_pairs_once(tmp_path: Path, given: Given) -> None:
    found, _ = pair_set(tmp_path, given, (0, "1", "2"), (0, "1", "3"), (1, "1", "2"))
    ids = [(one.row, given[1].decode([one.completion_ids])[0], one.label) for one in found.answers]
    assert ids == [(0, "1", True), (0, "2", False), (0, "3", False), (1, "1", True), (1, "2", False)]


@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_a_step_learns_from_them(tmp_path: Path, given: Given, loss: str) -> None:
    recipe, policy, _ = given
    assert recipe.prefer is not None
    recipe = recipe.model_copy(update={"prefer": recipe.prefer.model_copy(update={"loss": loss})})
    found, _ = pair_set(tmp_path, given, *((i, "1 1", "2 2") for i in range(4)))
    before = [p.detach().clone() for p in policy.model.parameters()]
    learner = PairLearner(recipe, policy, tmp_path / "out", NonFinite(True, print))
    measured = learner.learn_from(0, found, lambda done, total: None)
    assert measured["prefer/pairs"] == 4 and measured["updates"] == {"dpo": 1, "kto": 2}[loss]
    assert any(not torch.equal(p, q) for p, q in zip(before, policy.model.parameters(), strict=True))


def test_pairs_that_do_not_fit_are_left_out_and_said_and_none_at_all_is_an_error(tmp_path: Path, given: Given) -> None:
    recipe, policy, rows = given
    room = (policy.context or 0) - len(policy.encode(rows[0])) - 1
    fits, over = "7" * room, "7" * (room + 1)
    assert len(policy.encode_answer(fits)) == room + 1  # a digit is a token
    found, said = pair_set(tmp_path, given, (0, fits, "2"), (0, "1", over), (1, "1", "2"))
    assert [(one.row, len(one.chosen_ids)) for one in found.pairs] == [(0, room + 1), (1, 2)]
    assert len(said) == 1 and "left out 1 of 3 pairs" in said[0]
    assert [one.row for one in found.answers] == [0, 0, 1, 1]
    _, said = pair_set(tmp_path, given, (0, "1\ufffd", "2"), (1, "1", "2"))
    assert len(said) == 1 and said[0].startswith("1 of 2 pairs hold U+FFFD")
    with pytest.raises(DataError, match=r"no pair of `p\.jsonl` fits") as refused:
        pair_set(tmp_path, (recipe, replace(policy), rows), (0, over, "2"))
    assert int(refused.value.code) == 3


def test_the_placebo_keeps_the_texts_and_their_number_of_right_ones_and_deals_these_out_anew(
    tmp_path: Path, given: Given
) -> None:
    lines = [(i, f"{i} {a}", f"{i} {b}") for i in range(12) for a, b in ((1, 2), (3, 4), (3, 2))]
    plain, _ = pair_set(tmp_path, given, *lines)
    found, said = pair_set(tmp_path, given, *lines, placebo=5)
    again, _ = pair_set(tmp_path, given, *lines, placebo=5)
    other, _ = pair_set(tmp_path, given, *lines, placebo=6)
    assert said == [] and found == again != other
    assert [(a.row, a.completion_ids) for a in found.answers] == [(a.row, a.completion_ids) for a in plain.answers]
    for row in range(12):
        right = [sum(a.label for a in one.answers if a.row == row) for one in (plain, found)]
        assert right == [2, 2]
    labels = {(a.row, tuple(a.completion_ids)): a.label for a in found.answers}
    for pair in found.pairs:
        assert labels[pair.row, tuple(pair.chosen_ids)] and not labels[pair.row, tuple(pair.rejected_ids)]
    assert len(found.pairs) == len(plain.pairs) == 36  # all lengths are alike here
    turned = [a.label != b.label for a, b in zip(plain.answers, found.answers, strict=True)]
    assert 12 <= sum(turned) <= 36  # of four labels two are expected to turn


def test_the_placebo_pairs_no_lengths_farther_apart_than_the_file(tmp_path: Path, given: Given) -> None:
    lines = [(i, one, other) for i in range(12) for one, other in (("1", "2"), ("3 3 3 3 3 3", "4 4 4 4 4 4"))]
    found, _ = pair_set(tmp_path, given, *lines, placebo=1)
    assert 0 < len(found.pairs) < 24
    assert all(len(pair.chosen_ids) == len(pair.rejected_ids) for pair in found.pairs)
    assert found.summary.pairs == len(found.pairs) and sum(found.summary.without.values()) > 0
