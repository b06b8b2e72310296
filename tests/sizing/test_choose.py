"""The rule of choice: a golden table of models and cards, and what it promises about each: it fits, and what came before does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from grpo_cli.errors import UsageError
from grpo_cli.jobs.check.cost import check_fit
from grpo_cli.jobs.check.findings import Level
from grpo_cli.jobs.init import settings_for
from grpo_cli.policy.loading.files import ModelFiles
from grpo_cli.policy.loading.sizes import ModelSizes, known_shapes, read_sizes
from grpo_cli.recipe.arithmetic import plan
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.sizing.cards import read_cards
from grpo_cli.sizing.choose import RUNGS, SHARE, choose, hint_of, smallest_card, write_into
from grpo_cli.sizing.fit import CardQuestion
from grpo_cli.starters import TASKS, files, write
from tests.sizing.test_fit import answer, recipe

CARDS = ("t4", "4090", "rtx 6000 ada", "h100", "h200")
GOLDEN = {
    "Qwen2.5-0.5B": ("LoRA no 4", "full no 4", "full no 16", "full no 16", "full no 16"),
    "Qwen3-0.6B": ("LoRA no 4", "full no 4", "full no 16", "full no 16", "full no 16"),
    "Qwen2.5-1.5B": ("LoRA selective 8", "LoRA no 4", "LoRA no 8", "full no 16", "full no 16"),
    "Qwen2.5-3B": ("4-bit selective 4", "LoRA selective 16", "LoRA no 4", "LoRA no 8", "full no 16"),
    "Qwen3-4B": ("4-bit selective 8", "LoRA selective 16", "LoRA no 4", "LoRA no 8", "full no 8"),
    "Qwen2.5-7B": ("4-bit selective 4", "LoRA selective 8", "LoRA selective 16", "LoRA no 8", "LoRA no 16"),
    "Qwen3-8B": ("4-bit selective 4", "LoRA selective 4", "LoRA selective 16", "LoRA no 4", "LoRA no 16"),
    "Qwen2.5-14B": (None, "4-bit selective 4", "LoRA selective 8", "LoRA selective 16", "LoRA no 8"),
    "Qwen2.5-32B": (None, None, "4-bit selective 8", "4-bit selective 16", "LoRA selective 16"),
}
"""What is trained, what is made again, and the micro-batch; by GiB of 14.6, 23.5, 47.4, 79 and 139.8."""


def sizes_of(name: str) -> ModelSizes:
    found = read_sizes(Model(path=f"x/{name}"), ModelFiles(None, None, None))
    assert found is not None
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_the_rule_chooses_as_in_the_table(name: str) -> None:
    one = recipe(model={"path": f"x/{name}", "dtype": "auto"})
    found = [choose(one, sizes_of(name), read_cards(card), 64) for card in CARDS]
    said = [f"{' '.join(chosen.rung)} {chosen.fit.work.micro}" if chosen else None for chosen in found]
    assert tuple(said) == GOLDEN[name]


@pytest.mark.parametrize("name", known_shapes())
def test_what_is_chosen_fits_and_nothing_before_it_does(name: str) -> None:
    one = recipe(model={"path": f"x/{name}", "dtype": "auto"})
    for gpu in ("t4", "l4", "l40s", "2xh100"):
        cards = read_cards(gpu)
        if (chosen := choose(one, sizes_of(name), cards, 64)) is None:
            continue
        own, card = chosen.fit.work.recipe, cards.card
        said = check_fit(own, sizes_of(name), plan(own, 64), None, CardQuestion(cards), 0)
        assert (said.level, said.data["memory_bytes"]) == (Level.OK, chosen.fit.as_json()["memory_bytes"])
        assert [rung for rung, _ in chosen.refused] == list(RUNGS[: RUNGS.index(chosen.rung)])
        assert all(gib > SHARE * card.memory for _, gib in chosen.refused)
        assert own.sample.micro_batch * (256 + own.sample.max_tokens) <= 32_768


def test_a_model_offered_in_4_bits_is_trained_by_adapters_on_them() -> None:
    one = recipe(model={"path": "unsloth/Qwen2.5-0.5B-bnb-4bit", "dtype": "auto"})
    chosen = choose(one, sizes_of("Qwen2.5-0.5B"), read_cards("h200"), 64)
    assert chosen is not None and chosen.rung == ("4-bit", "no")
    assert chosen.keys() == {"model.lora": "{r: 16}", "sample.micro_batch": "16"}


def test_where_nothing_fits_the_smallest_card_that_does_is_named() -> None:
    one = recipe(model={"path": "x/Qwen2.5-32B", "dtype": "auto"})
    least = smallest_card(one, sizes_of("Qwen2.5-32B"), 64)
    assert least is not None and least.name == "RTX 5090"
    with pytest.raises(UsageError, match="fits no RTX 4090") as error:
        settings_for("math", "Qwen/Qwen2.5-32B-Instruct", "4090")
    assert error.value.hint == "the smallest that does is one RTX 5090, 31.4 GiB"


@pytest.mark.parametrize("task", [task for task in TASKS if task != "environment"])
@pytest.mark.parametrize(("model", "gpu"), [("Qwen/Qwen2.5-0.5B-Instruct", "h100"), ("Qwen/Qwen3-8B", "4090")])
def test_what_is_written_holds_the_settings_and_the_starters_comments(
    tmp_path: Path, task: str, model: str, gpu: str
) -> None:
    chosen = settings_for(task, model, gpu)
    written = write(task, tmp_path, model, edited=lambda text: write_into(text, chosen))
    file = next(path for path in written if path.suffix == ".yaml")
    one, own = load(file), chosen.fit.work.recipe
    assert (one.model.path, one.model.lora, one.model.load_in_4bit) == (model, own.model.lora, own.model.load_in_4bit)
    assert one.sample == own.sample and one.train == own.train
    assert one.sample.max_tokens == (
        1024 if task in ("math", "code") else load(files(task)["recipe.yaml"]).sample.max_tokens
    )
    starter = [line for line in files(task)["recipe.yaml"].read_text().splitlines() if line.startswith("#")]
    assert [line for line in file.read_text().splitlines() if line.startswith("#")] == starter
    assert YAML(typ="safe").load(file.read_text())["eval"] == {"every": 10}


@pytest.mark.parametrize(
    ("name", "micro", "sections", "card", "hint"),
    [
        (
            "1.5b",
            64,
            {},
            17,
            "`sample.micro_batch: 2`, or `train.recompute: selective` with `sample.micro_batch: 16`, or ",
        ),
        ("1.5b", 64, {}, 15.5, "`model.lora: {r: 16}` with `sample.micro_batch: 8`, or "),
        ("1.5b", 64, {"train": {"recompute": "selective"}}, 20, "`sample.micro_batch: 16`, or more cards"),
        ("1.5b", 64, {"launch": {"gpus": 2, "strategy": "fsdp2"}}, 17, "`sample.micro_batch: 4`, or a shorter"),
        ("7b", 16, {"model": {"lora": {"r": 8}}}, 24, "`sample.micro_batch: 4`, or more cards"),
        (
            "7b",
            16,
            {"model": {"lora": {"r": 8}}},
            12,
            "`model.load_in_4bit: true` with `train.recompute: selective`, or ",
        ),
        (
            "7b",
            16,
            {"model": {"path": "x.gguf", "lora": {"r": 8}}},
            12,
            "more cards with `launch.strategy: fsdp2`, or ",
        ),
    ],
)
def test_a_hint_names_the_first_way_that_fits_with_the_runs_own_lengths(
    name: str, micro: int, sections: dict[str, Any], card: float, hint: str
) -> None:
    found = answer(recipe(micro, **sections), name, f"{card},312,1.5")
    assert found.answer == "does not fit" and hint_of(found).startswith(hint)


def test_a_model_of_unknown_sizes_is_answered_by_the_nearest_names_and_no_number() -> None:
    one = recipe(model={"path": "someone/Qwen3-9B-Instruct"})
    found = check_fit(one, None, plan(one, 64), None, CardQuestion(read_cards("h100")), 0)
    assert (found.level, found.data, found.lines) == (Level.UNKNOWN, {}, ())
    assert "`Qwen3-8B`" in found.hint and "`model.path`" in found.hint


def test_what_cannot_be_chosen_for_is_refused_with_what_helps() -> None:
    for model, part in (("Qwen/Qwen9-8B", "`Qwen3-8B`"), ("builtin:tiny", "leave `--gpu` out")):
        with pytest.raises(UsageError) as error:
            settings_for("math", model, "4090")
        assert part in (error.value.hint or "")
