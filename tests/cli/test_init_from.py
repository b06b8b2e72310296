"""`grpo init --from FILE`: configurations of TRL, open-r1 and axolotl as recipes that load, and what of them is not in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grpo_cli.app import app
from grpo_cli.recipe.reading.load import load
from grpo_cli.recipe.sections.recipe import Recipe

TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
dtype: bfloat16
dataset_name: trl-lib/DeepMath-103K
reward_funcs: [accuracy_reward, my_lib.rewards.short_enough]
reward_weights: [1.0, 0.25]
num_generations: 8
per_device_train_batch_size: 16
gradient_accumulation_steps: 4
max_completion_length: 1024
learning_rate: 1.0e-5
lr_scheduler_type: cosine
warmup_ratio: 0.1
max_steps: 200
beta: 0.04
epsilon_high: 0.28
loss_type: dr_grpo
scale_rewards: false
weight_decay: 0.01
logging_steps: 1
output_dir: out
save_steps: 50
report_to: [wandb]
gradient_checkpointing: true
top_p: 0.95
use_peft: true
lora_r: 32
lora_target_modules: all-linear
vllm_mode: colocate
some_new_flag: 3
"""
OPEN_R1 = """\
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2
dataset_name: open-r1/OpenR1-Math-220k
dataset_prompt_column: problem
system_prompt: "You are a helpful AI. <think>\\n...\\n</think>"
bf16: true
use_vllm: true
do_eval: false
gradient_accumulation_steps: 4
hub_model_id: x/y
learning_rate: 2.0e-05
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
max_prompt_length: 512
max_completion_length: 2048
max_steps: -1
num_generations: 16
num_train_epochs: 1
output_dir: data/Qwen-Open-R1
per_device_train_batch_size: 16
push_to_hub: true
reward_funcs: [accuracy, format, tag_count]
reward_weights: [1.0, 1.0, 1.0]
save_strategy: epoch
seed: 42
warmup_ratio: 0.1
"""
AXOLOTL = """\
base_model: Qwen/Qwen2.5-1.5B-Instruct
rl: grpo
trl:
  beta: 0.001
  max_completion_length: 256
  use_vllm: false
  num_generations: 4
  reward_funcs: ["rwd.rand_reward_func"]
  reward_weights: [1.0]
datasets:
  - {path: openai/gsm8k, name: main, split: train, type: rewards.oai_gsm8k_transform}
adapter: lora
lora_r: 64
lora_alpha: 32
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 4
num_epochs: 2
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 5e-6
flash_attention: true
output_dir: ./outputs
"""


def made(folder: Path, text: str, *more: str, name: str = "config.yaml") -> tuple[Recipe, str, str]:
    """The recipe, its text, and what was printed."""
    file = folder / name
    file.write_text(text)
    done = CliRunner().invoke(app, ["init", str(folder / "mine"), "--from", str(file), *more])
    assert done.exit_code == 0, done.output
    recipe = folder / "mine" / "recipe.yaml"
    assert f"next: grpo check {recipe}" in done.stdout
    return load(str(recipe)), recipe.read_text(), done.stdout


def test_a_config_of_trl(tmp_path: Path) -> None:
    recipe, text, said = made(tmp_path, TRL)
    assert (recipe.sample.prompts, recipe.sample.group, recipe.sample.micro_batch) == (8, 8, 16)
    assert (recipe.sample.max_tokens, recipe.sample.top_p, recipe.sample.off_policy_ok) == (1024, 0.95, True)
    train = recipe.train
    assert (train.steps, train.lr, train.schedule, train.lr_warmup_steps) == (200, 1e-5, "cosine", 20)
    assert (train.kl.beta, train.clip.low, train.clip.high) == (0.04, 0.2, 0.28)
    assert (train.loss, train.scale) == ("dr_grpo", "none")
    assert train.trl["weight_decay"] == 0.01 and train.trl["gradient_checkpointing"] is True
    assert recipe.model.lora is not None and recipe.model.lora.r == 32 and recipe.model.dtype == "auto"
    assert recipe.verify["accuracy_reward"].options["function"] == "trl.rewards:accuracy_reward"
    mine = recipe.verify["short_enough"]
    assert (mine.options["function"], mine.weight) == ("my_lib.rewards:short_enough", 0.25)
    assert recipe.data.train[0].source == "hub:trl-lib/DeepMath-103K"
    assert (recipe.run.dir, recipe.run.save_every, recipe.run.track) == ("out", 50, ["wandb"])
    for left in (
        "some_new_flag: 3 (nothing here means that)",
        "dtype: bfloat16",
        "logging_steps: 1 (every step",
        "vllm_mode",
    ):
        assert left in said and left in text


def test_a_recipe_of_open_r1(tmp_path: Path) -> None:
    recipe, _, said = made(tmp_path, OPEN_R1)
    assert (recipe.train.epochs, recipe.train.steps) == (1.0, 0)
    assert (recipe.sample.engine, recipe.sample.prompts, recipe.sample.group) == ("vllm", 4, 16)
    assert recipe.train.trl["lr_scheduler_type"] == "cosine_with_min_lr"
    assert recipe.train.trl["lr_scheduler_kwargs"] == {"min_lr_rate": 0.1}
    assert (recipe.data.prompt, recipe.data.answer) == ("{problem}", "{solution}")
    assert recipe.data.system is not None and recipe.data.system.startswith("You are a helpful AI")
    assert list(recipe.verify) == ["math", "format"]
    assert recipe.model.attention == "flash_attention_2" and recipe.model.revision == "main"
    for left in ("reward_funcs: tag_count", "push_to_hub: True (use `grpo export`)", "warmup_ratio: 0.1", "bf16"):
        assert left in said


def test_a_config_of_axolotl(tmp_path: Path) -> None:
    recipe, _, said = made(tmp_path, AXOLOTL)
    assert recipe.model.path == "Qwen/Qwen2.5-1.5B-Instruct"
    lora = recipe.model.lora
    assert lora is not None and (lora.r, lora.alpha, lora.dropout, lora.targets) == (64, 32, 0.05, "all-linear")
    assert (recipe.sample.prompts, recipe.sample.group, recipe.sample.micro_batch) == (4, 4, 4)
    assert (recipe.train.epochs, recipe.train.kl.beta, recipe.train.lr) == (2.0, 0.001, 5e-6)
    source = recipe.data.train[0]
    assert (source.source, source.options) == ("hub:openai/gsm8k", {"split": "train", "config": "main"})
    assert recipe.verify["rand_reward_func"].options["function"] == "rwd:rand_reward_func"
    assert recipe.train.dead_groups == "keep" and recipe.train.kl.estimator == "k3"
    assert "flash_attention: True" in said and "optimizer: adamw_torch_fused" in said


def test_json_a_mixture_and_a_sequence_ratio(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "model_name_or_path": "./m", "importance_sampling_level": "sequence", "num_generations": 6,
        "per_device_train_batch_size": 4, "max_steps": 5, "reward_funcs": "some/reward-model",
        "dataset_mixture": {"datasets": [{"id": "a/b", "split": "train", "weight": 0.5}, {"id": "c/d", "config": "x"}]},
    }  # fmt: skip
    recipe, _, said = made(tmp_path, json.dumps(config), "--model", "builtin:tiny", name="c.json")
    assert (recipe.train.ratio, recipe.train.loss, recipe.sample.prompts) == ("sequence", "grpo", 1)
    assert [(s.source, s.weight) for s in recipe.data.train] == [("hub:a/b", 0.5), ("hub:c/d", 1.0)]
    assert recipe.model.path == "builtin:tiny"
    assert "no whole groups of 6" in said and "kind: reward_model" in said and "`verify` says `math`" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rl: dpo\nlearning_rate: 1e-6\n", "another method"),
        ("name: x\nsteps:\n  - run\n", "none of its names"),
        ("- a\n- b\n", "no mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_is_no_grpo_config_is_refused_and_nothing_is_written(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["init", str(tmp_path / "mine"), "--from", str(file)])
    assert done.exit_code != 0
    assert words in str(done.exception or done.output)
    assert not (tmp_path / "mine").exists()


def test_a_recipe_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    made(tmp_path, TRL)
    again = ["init", str(tmp_path / "mine"), "--from", str(tmp_path / "config.yaml")]
    assert CliRunner().invoke(app, again).exit_code != 0
    assert CliRunner().invoke(app, [*again, "--force"]).exit_code == 0
