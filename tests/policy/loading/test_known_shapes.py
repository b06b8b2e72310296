"""Shapes of common models that are not on this disk: their sum is the published count of parameters, names find them."""

from __future__ import annotations

import pytest

from grpo_cli.policy.loading.files import ModelFiles
from grpo_cli.policy.loading.sizes import known_name, known_shapes, read_sizes, size_hint
from grpo_cli.recipe.sections.recipe import Model

PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.1-8B": 8_030_261_248,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "SmolLM3-3B": 3_075_098_624,
    "Mistral-7B-v0.3": 7_248_023_552,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "Phi-4-mini": 3_836_021_760,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "DeepSeek-R1-Distill-Qwen-7B": 7_615_616_512,
    "gemma-3-270m": 268_098_176,
    "phi-4": 14_659_507_200,
}
"""Numbers in the safetensors files on the hub, as its pages show them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_shapes_add_up_to_the_published_count(name: str) -> None:
    found = read_sizes(Model(path=f"anyone/{name}"), ModelFiles(None, None, None))
    assert found is not None and found.source == f"the known shapes of {name}"
    assert found.parameters == pytest.approx(PUBLISHED[name], rel=1e-3)


def test_the_counts_are_those_of_every_shape_but_finetunes_of_one() -> None:
    own = {name.replace("-Math", "").replace("-Coder", "").removesuffix("-2507") for name in known_shapes()}
    assert own == set(PUBLISHED)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("unsloth/Qwen2.5-7B-Instruct-unsloth-bnb-4bit", "Qwen2.5-7B"),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B-2507"),
        ("Qwen/Qwen3-4B-Thinking-2507", "Qwen3-4B-2507"),
        ("Qwen/Qwen3-8B-Base", "Qwen3-8B"),
        ("google/gemma-3-1b-it", "gemma-3-1b"),
        ("microsoft/Phi-4-mini-instruct", "Phi-4-mini"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2-135M"),
        ("builtin:smollm2-135m", "SmolLM2-135M"),
        ("Qwen2.5-1.5B", "Qwen2.5-1.5B"),
        ("Qwen/Qwen2.5-Math-7B-Instruct", "Qwen2.5-Math-7B"),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct", "Qwen2.5-Coder-1.5B"),
        ("Qwen/Qwen3-8B-Instruct-2507", "Qwen3-8B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "Llama-3.1-8B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "DeepSeek-R1-Distill-Qwen-7B"),
        ("microsoft/phi-4", "phi-4"),
        ("Qwen/Qwen2.5-7B-Instruct-1M", None),
        ("Qwen/Qwen3-30B-A3B", None),
        ("./Qwen2.5-7B", None),
        ("/models/Qwen2.5-7B", None),
        ("a/b/Qwen2.5-7B", None),
        ("builtin:tiny", None),
        ("", None),
    ],
)
def test_a_name_finds_its_shapes_or_none(path: str, name: str | None) -> None:
    assert known_name(path) == name


def test_an_unknown_name_is_answered_by_the_nearest_and_the_key_that_takes_sizes() -> None:
    said = size_hint(Model(path="Qwen/Qwen3-9B-Instruct"))
    assert "`Qwen3-8B`" in said and "`model.path`" in said and "`config.json`" in said
    assert size_hint(Model(path="someone/xyzzy")).startswith("`model.path`")  # none is near: none is named


def test_every_shape_has_a_name_that_finds_it() -> None:
    assert all(known_name(f"x/{name}") == name for name in known_shapes())
