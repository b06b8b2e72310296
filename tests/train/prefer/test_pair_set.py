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
from grpo_cli.train.nonfinite import NonFinite
from grpo_cli.train.prefer.learn import PairLearner
from grpo_cli.train.prefer.pair_set import PairSet
from tests.loop.recipes import small_recipe

Given = tuple[Recipe, Policy, list[Row]]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    recipe = load(str(small_recipe(tmp_path)), ["train.method=prefer", "prefer.batch=4"])
    policy = load_model(recipe.model, device=torch.device("cpu"), seed=1)
    return recipe, policy, load_rows(recipe.data, "train")


def pair_set(
    folder: Path, given: Given, *pairs: tuple[int, str, str], stop: tuple[str, ...] = ()
) -> tuple[PairSet, list[str]]:
    _, policy, rows = given
    lines = [
        {"row": rows[i].id, "prompt": rows[i].prompt, "chosen": one, "rejected": other}
        for i, one, other in pairs
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said: list[str] = []
    source = Source.model_validate({"from": "p.jsonl"})
    return PairSet.of_file(source, folder, policy, rows, [], stop, said.append), said


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


def test_pairs_that_do_not_fit_are_left_out_and_said_and_none_at_all_is_an_error(
    tmp_path: Path, given: Given
) -> None:
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
