"""Words of other trainers lead to the key that means the same, in whatever section they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.checking.other_names import OTHERS, OURS
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.at_path import key_names, section

BASE = 'model: some/model\ndata: {train: a.jsonl, prompt: "{question}"}\nverify: {math: {}}\ntrain: {steps: 10}\n'


def hint(tmp_path: Path, said: str) -> str:
    file = tmp_path / "r.yaml"
    file.write_text(BASE)
    with pytest.raises(RecipeError) as caught:
        load(file, [said])
    return caught.value.hint


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("train.num_train_epochs=1", "train.epochs"),
        ("train.beta=0.04", "train.kl.beta"),
        ("sample.num_generations=8", "sample.group"),
        ("sample.n=8", "sample.group"),
        ("num_generations=8", "sample.group"),
        ("train.optim=adamw_8bit", "train.trl.optim"),
        ("train.learning_rate=1e-6", "train.lr"),
        ("train.clip_ratio_high=0.28", "train.clip.high"),
        ("train.kl_loss_coef=0.1", "train.kl.beta"),
        ("sample.max_completion_length=99", "sample.max_tokens"),
        ("sample.max-new-tokens=99", "sample.max_tokens"),
        ("data.max_prompt_length=99", "data.max_prompt_tokens"),
        ("data.val_files=x.parquet", "data.eval"),
        ("data.system_prompt=x", "data.system"),
        ("dataset_name=x", "data.train"),
        ("reward_funcs=[x]", "verify"),
        ("model.base_model=x", "model.path"),
        ("model.model_name_or_path=x", "model.path"),
        ("model.lora_r=16", "model.lora.r"),
        ("run.save_steps=10", "run.save_every"),
        ("run.experiment_name=x", "run.name"),
        ("eval.test_freq=5", "eval.every"),
        ("launch.n_gpus_per_node=8", "launch.gpus"),
        ("train.weight_decay=0.1", "train.trl.weight_decay"),
    ],
)
def test_a_name_of_another_trainer_gets_the_key_here(tmp_path: Path, said: str, key: str) -> None:
    assert f"here it is `{key}`" in hint(tmp_path, said)


def test_a_name_that_needs_no_key_is_told_why(tmp_path: Path) -> None:
    assert "every step is recorded" in hint(tmp_path, "train.logging_steps=1")


def test_a_name_of_a_sections_own_is_still_guessed_at(tmp_path: Path) -> None:
    assert "did you mean `group`" in hint(tmp_path, "sample.groop=8")


def test_every_counterpart_is_a_key_of_the_recipe() -> None:
    for name, key in (OTHERS | OURS).items():
        parts = tuple(part for part in key.split(".") if part != "NAME")
        if key.startswith(("train.trl", "data.train.options", "sample.vllm", "verify")):
            continue
        model = section(parts[:-1])
        assert model is not None and parts[-1] in key_names(model), (name, key)
