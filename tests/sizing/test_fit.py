"""Predictions against what was measured on one H200 and one H100 (docs/benchmarks/speed.md), and what the answers say."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.errors import UsageError
from grpo_cli.policy.loading.files import ModelFiles
from grpo_cli.policy.loading.sizes import ModelSizes, read_sizes
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.sections.recipe import Model, Recipe
from grpo_cli.sizing import duration, work
from grpo_cli.sizing.cards import read_cards
from grpo_cli.sizing.choose import hint_of
from grpo_cli.sizing.duration import generate_seconds
from grpo_cli.sizing.fit import ERROR, RETURNED, CardQuestion, Fit, ask_of, fit, lengths_of, unfit
from grpo_cli.sizing.work import GIB, OUTSIDE, pass_bytes
from grpo_cli.sizing.work import held as held_bytes

SHAPES = {
    "135m": (49_152, 576, 1536, 30, 9, 3),
    "1.5b": (151_936, 1536, 8960, 28, 12, 2),
    "0.6b": (151_936, 1024, 3072, 28, 16, 8),
    "7b": (152_064, 3584, 18_944, 28, 28, 4),
}


def sizes(name: str, experts: int = 0) -> ModelSizes:
    vocab, hidden, inner, layers, heads, kv_heads = SHAPES[name]
    width = hidden // heads
    body = layers * (2 * hidden * hidden + 2 * hidden * kv_heads * width + 3 * hidden * inner)
    return ModelSizes(
        body + vocab * hidden, layers, hidden, inner, heads, kv_heads, width, vocab, None, "x", True, experts
    )


def recipe(micro: int | None = None, **sections: dict[str, Any]) -> Recipe:
    said: dict[str, Any] = {
        "grpo": 1,
        "model": {"path": "x", "dtype": "bfloat16"} | sections.pop("model", {}),
        "data": {"train": "x", "prompt": "{p}", "answer": "{a}"},
        "verify": {"regex": {"pattern": "a"}},
        "sample": {"prompts": 32, "group": 8, "max_tokens": 256, "micro_batch": micro} | sections.pop("sample", {}),
        "train": {"steps": 100, "lr": 1e-6} | sections.pop("train", {}),
    }
    return Recipe.model_validate(said | sections)


def answer(
    one: Recipe, name: str, card: str = "h200", price: float | None = None, held_out: int = 0, **lengths: Any
) -> Fit:
    counts = [56 + i % 16 for i in range(64)]
    known = lengths_of(counts, one.sample.max_tokens, **lengths)
    return fit(one, sizes(name), plan(one, 3200), known, CardQuestion(read_cards(card), price), held_out)


@pytest.mark.parametrize(
    ("name", "micro", "model", "seconds"),
    [("135m", 64, {}, 0.80), ("1.5b", 32, {}, 2.14), ("7b", 16, {"lora": {"r": 16}}, 8.33)],
)
def test_a_step_measured_on_an_h200(name: str, micro: int, model: dict[str, Any], seconds: float) -> None:
    assert answer(recipe(micro, model=model), name).duration.step == pytest.approx(seconds, rel=0.3)


@pytest.mark.parametrize(("name", "micro", "gib"), [("135m", 64, 13.6), ("1.5b", 32, 36.0)])
def test_what_an_update_reserved_on_an_h200(name: str, micro: int, gib: float) -> None:
    found = answer(recipe(micro), name).memory
    no_cache = found.wanted - OUTSIDE - found.parts["cache of a rollout"]
    assert no_cache / GIB == pytest.approx(gib, rel=ERROR)


@pytest.mark.parametrize(("new", "rows", "gib", "seconds"), [(16_000, 8, 17.6, 2.67), (64_000, 4, 63.2, 13.39)])
def test_an_update_of_long_answers_measured_on_an_h200(
    new: int, rows: int, gib: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # both were measured before a row alone had torch's plain attention, and kept its logits
    monkeypatch.setattr(duration, "ATTENDS_ALONE", duration.ATTENDS)
    monkeypatch.setattr(work, "KEPT_SHARE", 1000)
    one = recipe(1, sample={"prompts": rows, "group": 1, "max_tokens": new})
    found = answer(one, "0.6b")
    held = sum(held_bytes(found.work).values())
    assert (held + sum(pass_bytes(found.work).values())) / GIB == pytest.approx(gib, rel=ERROR)
    assert found.duration.update + found.duration.other == pytest.approx(seconds, rel=0.3)


def test_what_is_made_again_or_waits_elsewhere_is_not_on_the_card() -> None:
    long = {"prompts": 4, "group": 1, "max_tokens": 64_000}
    trains = ({}, {"recompute": "selective"}, {"recompute": "full"}, {"recompute": "full", "offload": "activations"})
    passes = [pass_bytes(answer(recipe(1, sample=long, train=train), "0.6b").work) for train in trains]
    width, tokens = 2 * 1024, 64_068
    layer = tokens * (2 * (4 * 1024 + 2 * 1024 + 2 * 512 * 1.0 + 3 * 3072) + 4 * 16)
    # a layer's input, and attention's output of the same width with its sums of 16 heads
    expected = [28 * layer, 28 * tokens * (2 * width + 64), 28 * tokens * width, 2 * tokens * width]
    assert [one["activations"] for one in passes] == pytest.approx(expected, rel=0.01)
    assert all(one["logits, or a layer made again"] == pytest.approx(1.5 * layer, rel=0.01) for one in passes[1:])


@pytest.mark.parametrize(
    ("tokens", "train", "gib", "seconds"),
    [
        (16_384, {"recompute": "selective"}, 8.4, 0.391),
        (16_384, {"recompute": "full"}, 6.6, 0.437),
        (65_536, {}, 90.3, 3.676),
        (65_536, {"recompute": "selective"}, 19.0, 3.797),
        (65_536, {"recompute": "full"}, 12.1, 4.615),
        (65_536, {"recompute": "selective", "offload": "activations"}, 8.8, 3.950),
    ],
)
def test_a_pass_over_a_long_row_of_qwen3_measured_on_an_h200(
    tokens: int, train: dict[str, Any], gib: float, seconds: float
) -> None:
    shapes = read_sizes(Model(path="Qwen/Qwen3-0.6B"), ModelFiles(None, None, None))
    assert shapes is not None
    one = recipe(1, sample={"prompts": 1, "group": 1, "max_tokens": tokens}, train=train)
    found = fit(one, shapes, plan(one, 100), lengths_of([64], tokens), CardQuestion(read_cards("h200")))
    there = sum(held_bytes(found.work).values()) + sum(pass_bytes(found.work).values())
    assert there / GIB == pytest.approx(gib, rel=ERROR)
    assert found.duration.update == pytest.approx(seconds, rel=0.1)


def test_a_step_of_7b_measured_on_an_h200_that_nothing_was_tuned_on() -> None:
    shapes = read_sizes(Model(path="Qwen/Qwen2.5-7B"), ModelFiles(None, None, None))
    assert shapes is not None
    one = recipe(8, model={"dtype": "auto", "lora": {"r": 16}}, sample={"prompts": 8, "group": 8, "max_tokens": 1024})
    found = fit(one, shapes, plan(one, 100), lengths_of([256], 1024), CardQuestion(read_cards("h200")))
    assert found.memory.peak / GIB == pytest.approx(63.3, rel=ERROR)
    assert (found.duration.generate, found.duration.update) == pytest.approx((10.27, 4.75), rel=0.3)


def test_a_base_in_4_bits_is_its_matrices_in_nf4_beside_embeddings_in_16_bits() -> None:
    model = {"lora": {"r": 16}, "load_in_4bit": True}
    plain, packed = (answer(recipe(8, model=one), "7b") for one in ({"lora": {"r": 16}}, model))
    one, saved = sizes("7b"), 2 - (0.5 + 1 / 64 + 4 / 256 / 64)
    difference = plain.memory.parts["weights"] - packed.memory.parts["weights"]
    assert difference == pytest.approx(saved * one.body_parameters, rel=1e-6)
    assert packed.memory.parts["weights unpacked"] == 2 * 2 * 3584 * 18_944
    # decoding reads more of it, and each pass unpacks it
    assert packed.duration.generate > 1.3 * plain.duration.generate
    assert packed.duration.update > plain.duration.update
    named = answer(recipe(8, model={"path": "x/y-bnb-4bit", "lora": {"r": 16}}), "7b")
    assert named.memory.parts == packed.memory.parts


def test_an_optimizer_of_8_bits_keeps_a_byte_a_moment_but_for_embeddings() -> None:
    parts = answer(recipe(8, train={"trl": {"optim": "adamw_bnb_8bit"}}), "1.5b").memory.parts
    one = sizes("1.5b")
    assert parts["optimizer"] == 2 * one.body_parameters + 8 * one.head_parameters


def test_a_cache_larger_than_what_is_free_beside_it_is_given_back_before_the_update() -> None:
    large, small = (answer(recipe(8), "1.5b", card).memory for card in ("16,300,1", "h200"))
    cache = large.parts["cache of a rollout"]
    assert large.peak == sum(size for size in large.parts.values() if size > 0) - cache
    assert small.peak == sum(small.parts.values()) and small.parts["cache of a rollout"] >= cache
    assert RETURNED in large.parts and RETURNED not in small.parts


def test_a_row_alone_keeps_its_logits_where_a_quarter_of_what_is_free_holds_them() -> None:
    long = {"prompts": 8, "group": 1, "max_tokens": 16_000}
    kept, again = (answer(recipe(1, sample=long), "0.6b", card) for card in ("h200", "3090"))
    whole = 2 * 16_000 * 151_936
    assert pass_bytes(kept.work)["logits"] == whole > 2 * pass_bytes(again.work)["logits"]
    assert (kept.memory.pool, again.memory.pool) == (0, 0)  # and it is long: no graph holds it


def test_rows_that_find_no_room_decode_in_further_rounds() -> None:
    one = answer(recipe(8), "1.5b").work
    all_at_once, rounds = generate_seconds(one, 256), generate_seconds(one, 100)
    assert 1.8 * all_at_once < rounds < 3 * all_at_once  # three rounds, each of which launches and reads weights


def test_a_card_without_bfloat16_pads_its_rows() -> None:
    found = answer(recipe(8), "135m", "t4")
    assert not found.work.is_packed and found.memory.pool == 0
    assert found.duration.error == 0.6


@pytest.mark.parametrize(("name", "micro", "seconds"), [("135m", 64, 0.396), ("1.5b", 32, 1.347)])
def test_an_update_measured_on_an_h200(name: str, micro: int, seconds: float) -> None:
    found = answer(recipe(micro), name).duration
    assert found.update + found.other == pytest.approx(seconds, rel=0.3)


@pytest.mark.parametrize(("rows", "seconds"), [(64, 0.28), (128, 0.35), (256, 0.44), (512, 0.6), (1024, 0.94)])
def test_a_rollout_measured_on_an_h100(rows: int, seconds: float) -> None:
    found = answer(recipe(64, sample={"prompts": rows // 8}), "135m", "h100")
    assert generate_seconds(found.work, 1024) == pytest.approx(seconds, rel=0.2)


def test_the_state_is_what_its_numbers_take() -> None:
    parts = answer(recipe(8, model={"dtype": "auto"}, train={"kl": {"beta": 0.1}}), "135m").memory.parts
    n = sizes("135m").parameters
    assert parts["weights"] == parts["gradients"] == parts["reference"] == 4 * n
    assert parts["optimizer"] == 8 * n
    assert parts["half-precision copies that generate"] == pytest.approx(2 * n, rel=0.001)


def test_shards_are_shared_out() -> None:
    one = recipe(8, launch={"gpus": 4, "strategy": "fsdp2"})
    parts, whole = answer(one, "1.5b").memory.parts, answer(recipe(8), "1.5b").memory.parts
    for name in ("weights", "gradients", "optimizer"):
        assert parts[name] == whole[name] / 4
    assert parts["whole copy that generates"] == 2 * sizes("1.5b").parameters


def test_a_state_that_is_shared_out_leaves_weights_and_gradients_whole() -> None:
    one = recipe(8, launch={"gpus": 4, "strategy": "zero1"})
    parts, whole = answer(one, "1.5b").memory.parts, answer(recipe(8), "1.5b").memory.parts
    assert parts["optimizer"] == whole["optimizer"] / 4 and "whole copy that generates" not in parts
    assert all(parts[name] == whole[name] for name in ("weights", "gradients"))


def test_activations_made_again_take_a_fraction() -> None:
    kept, again = (
        answer(recipe(16, train={"trl": trl}), "7b").memory for trl in ({}, {"gradient_checkpointing": True})
    )
    assert again.parts["activations"] < 0.2 * kept.parts["activations"]


def test_what_does_not_fit_names_a_micro_batch_that_does() -> None:
    found = answer(recipe(256), "1.5b", "h100")
    assert found.answer == "does not fit"
    assert found.micro is not None
    assert f"`sample.micro_batch: {found.micro}`" in hint_of(found)
    assert answer(recipe(found.micro), "1.5b", "h100").answer in ("fits", "without graphs")


def test_where_the_weights_alone_are_too_large_no_micro_batch_helps() -> None:
    found = answer(recipe(16), "7b", "4090")
    assert (found.answer, found.micro) == ("does not fit", None)
    assert hint_of(found).startswith("`model.lora: {r: 16}` with `sample.micro_batch: 4`, or more cards")


def test_graphs_are_given_up_where_only_they_do_not_fit() -> None:
    found = answer(recipe(32), "1.5b", "39,312,1.56")
    assert found.answer == "without graphs"
    assert found.memory.wanted > 39 * GIB > found.memory.needed


def test_the_cost_is_hours_times_cards_times_price() -> None:
    found = answer(recipe(8, launch={"gpus": 4}), "135m", "h100", price=2.5)
    assert found.cost is not None
    assert found.cost == pytest.approx(tuple(hours * 4 * 2.5 for hours in found.hours))
    assert found.hours[0] < found.hours[1] < found.hours[2]
    assert "at 2.5 a card and hour" in found.message()


def test_cards_share_the_completions() -> None:
    found = answer(recipe(), "1.5b", "4xh100")
    assert (found.world, found.work.rows) == (4, 64)
    with pytest.raises(UsageError, match="come to 2, not 4"):
        answer(recipe(launch={"gpus": 2}), "1.5b", "4xh100")


def test_evaluations_take_their_time() -> None:
    one = recipe(64, data={"train": "x", "eval": "y", "prompt": "{p}", "answer": "{a}"}, eval={"every": 10})
    assert answer(one, "135m", held_out=512).duration.run > answer(one, "135m").duration.run + 10


def test_shorter_answers_take_less_time_and_the_same_memory() -> None:
    full, short = answer(recipe(64), "1.5b"), answer(recipe(64), "1.5b", completion=64.0, longest=200)
    assert short.duration.step < full.duration.step
    assert short.memory.peak == full.memory.peak


def test_of_experts_and_of_pairs_nothing_is_said() -> None:
    assert unfit(recipe(), sizes("135m")) is None
    assert "experts" in (unfit(recipe(), sizes("135m", experts=8)) or "")


@pytest.mark.parametrize(("gpu", "price"), [(None, 2.5), ("h100", -1.0), ("h100", float("nan"))])
def test_a_price_of_nothing_is_refused(gpu: str | None, price: float) -> None:
    with pytest.raises(UsageError):
        ask_of(gpu, price)
