"""Words of other trainers lead to the key that means the same, in whatever section they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError, UsageError
from grpo_cli.jobs.explain.subjects import find
from grpo_cli.recipe.checking.other_names import OTHERS, OURS
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import key_names, section

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


METHODS = {
    "train.reward_combine=gdpo": "`gdpo` belongs under `train.algorithm`",
    "train.algorithm=n_grpo": "`n_grpo` is not here by name: N-GRPO is `sample.mix: {rate: 0.1}`",
    "train.algorithm=N-GRPO": "`N-GRPO` is not here by name: N-GRPO is `sample.mix: {rate: 0.1}`",
    "train.algorithm=vapo": "`algorithm: ppo` with `train.critic: {lambda: adaptive, positive: 0.1}`",
    "train.algorithm=trpo": "`trpo` is not here by name",
    "train.algorithm=remax": "`remax` is not here by name",
    "train.algorithm=rpo": "`rpo` is not here by name",
    "train.algorithm=spo": "`spo` is not here by name",
    "train.algorithm=apo": "`apo` is not here by name",
    "train.algorithm=grpo_k2": "`grpo_k2` is not here by name",
    "train.algorithm=cppo": "`train.prune: {keep: N, by: advantage}`",
    "train.algorithm=sft": "say `train.method: sft`",
    "train.algorithm=dpo": "`dpo` belongs under `prefer.loss`",
    "train.algorithm=bnpo": "`bnpo` belongs under `train.loss`",
    "train.algorithm=greso": "`greso` belongs under `train.select`",
    "train.loss=gspo": "`gspo` belongs under `train.algorithm`",
    "prefer.loss=sppo": "`sppo` is not here by name",
    "prefer.loss=cpo": "`cpo` is not here by name",
}
SLIPS = {
    "train.algorithm": {
        "grpo": ("gpro", "GRPO", "g-rpo", "grp", "grpoo"),
        "dr_grpo": ("DrGRPO", "dr.grpo", "dr-grpo", "dr_gpro"),
        "reinforce_pp": ("reinforce++", "REINFORCE_PLUS_PLUS", "reinforcepp", "reinforce++-baseline"),
        "gspo_token": ("gspo-token", "gspo_tok", "gspotoken"),
        "default": ("defualt", "defaut"),
    },
    "prefer.loss": {"dpo": ("sigmoid", "DPO"), "simpo": ("simp", "SimPO")},
    "train.select": {"mopps": ("mopp",), "easy_to_hard": ("easy-to-hard", "easytohard", "easy_to_hart")},
}


@pytest.mark.parametrize("said", METHODS)
def test_a_method_that_is_not_here_is_not_taken_for_the_nearest_name(tmp_path: Path, said: str) -> None:
    told = hint(tmp_path, said)
    assert METHODS[said] in told and "did you mean" not in told


def test_a_slip_in_a_part_of_a_split_gets_its_keys(tmp_path: Path) -> None:
    told = hint(tmp_path, "train.split={a: {verifiers: [math], weigth: 1}}")
    assert "did you mean `weight`? `train.split.a` has: verifiers, weight" in told


@pytest.mark.parametrize(("key", "method"), [(key, method) for key in SLIPS for method in SLIPS[key]])
def test_slips_in_a_methods_name_are_still_known(tmp_path: Path, key: str, method: str) -> None:
    for slip in SLIPS[key][method]:
        assert hint(tmp_path, f"{key}={slip}") == f"did you mean `{method}`?", slip


def test_explain_does_not_take_a_method_for_the_nearest_name_either() -> None:
    for name, wanted in {"vapo": "VAPO's parts", "gpro": "did you mean `grpo`?", "trpo": "`grpo explain` lists", "jsn": "`json`"}.items():  # fmt: skip
        with pytest.raises(UsageError) as caught:
            find(name)
        assert wanted in caught.value.hint, name
