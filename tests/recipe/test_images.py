"""Recipes with images: what sets the model's kind, and one sentence for each key that does not carry images."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.recipe.checking.rules import check_rules
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.widening import merge

PLAIN: dict[str, Any] = {
    "grpo": 1,
    "model": "builtin:tiny-vision",
    "data": {"train": "tasks:squares", "prompt": "{question}", "answer": "{answer}", "images": "{image}"},
    "verify": {"exact": {}},
    "train": {"steps": 1},
}


def found(changes: dict[str, Any]) -> list[tuple[str, str]]:
    recipe = Recipe.model_validate(merge(PLAIN, changes))
    return [(".".join(map(str, one.path)), one.message) for one in check_rules(recipe, lambda _: True)]


def test_images_make_it_a_model_that_reads_them() -> None:
    assert found({}) == []
    assert Recipe.model_validate(PLAIN).model.kind == "vision"
    assert Recipe.model_validate(merge(PLAIN, {"data": {"images": []}})).model.kind == "text"
    assert found({"model": {"path": "builtin:tiny-vision", "kind": "text"}}) == [
        ("model.kind", "`model.kind: text` reads no images")
    ]
    assert found({"data": {"images": None}, "model": {"path": "builtin:tiny-vision", "kind": "vision"}}) == [
        ("model.kind", "`model.kind: vision` is for rows with images")
    ]
    assert found({"data": {"images": None, "image_pixels": {"most": 9}}})[0][0] == "data.image_pixels.most"
    assert found({"data": {"image_pixels": {"least": 99, "most": 9}}}) == [
        ("data.image_pixels.least", "`least` is 99 and `most` 9")
    ]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("data.plain", {"data": {"plain": True}}),
        ("environment", {"environment": "environments:guess"}),
        ("train.method", {"train": {"method": "prefer"}}),
        ("train.critic", {"train": {"algorithm": "ppo", "mini_batches": 1}}),
        ("train.credit", {"train": {"credit": {"method": "milestones", "patterns": {"a": "b"}}}}),
        ("train.mini_batches", {"train": {"mini_batches": 2}}),
        ("train.select", {"train": {"select": "ads"}}),
        ("train.recompute", {"train": {"recompute": "full"}}),
        ("train.offload", {"train": {"offload": "activations"}}),
        ("train.trl.gradient_checkpointing", {"train": {"trl": {"gradient_checkpointing": True}}}),
        ("train.trl.use_liger_kernel", {"train": {"trl": {"use_liger_kernel": True}}}),
        ("train.trl.torch_compile", {"train": {"trl": {"torch_compile": True}}}),
        ("sample.mix", {"sample": {"mix": {"rate": 0.1}}}),
        ("sample.engine", {"sample": {"engine": "graph"}}),
        ("sample.engine", {"sample": {"engine": "vllm"}}),
        ("launch.strategy", {"launch": {"strategy": "fsdp2", "gpus": 2}}),
        ("model.load_in_4bit", {"model": {"path": "a", "load_in_4bit": True, "lora": {"r": 4}}}),
        ("model.gguf_file", {"model": {"path": "a.gguf"}}),
        ("model.path", {"model": "builtin:tiny"}),
    ],
)
def test_each_key_that_does_not_carry_images_is_refused_by_its_name(path: str, changes: dict[str, Any]) -> None:
    own = [message for at, message in found(changes) if at == path and "images" in message]
    assert own == [f"`{path}` does not carry images, or was not tried with them"]
    without = {"data": {**changes.get("data", {}), "images": None}, "model": changes.get("model", "builtin:tiny")}
    assert not any("carry images" in message for _, message in found(merge(changes, without)))
