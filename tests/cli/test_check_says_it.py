"""What `grpo train` refuses before its first step and can be known without weights: `grpo check` says the same sentence, gives
the same hint and ends with the same code.

Train's alone, for they need the weights or an engine that runs: weights that are broken or do not fit their configuration
(`policy/model.py`), positions of a padded batch (`policy/positions.py`), training and sampling that disagree
(`train/agreement.py`), memory of the graph engine, vLLM that does not start, a server with another model, a warm-up that
learns nothing, an optimizer of the model's own layers (`train/trainer.py`), and ranks that cannot be reached.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_cli.commands.work.train import _launch_ranks
from grpo_cli.display.choose import make_display
from grpo_cli.errors import Exit, UserError
from grpo_cli.jobs.check.findings import CheckFinding, failed
from grpo_cli.jobs.check.recipe import RecipeCheck
from grpo_cli.jobs.train.job import Job
from grpo_cli.jobs.train.stages import StageChain
from grpo_cli.policy.loading import packages
from grpo_cli.policy.loading.inspection import refuse_flaws
from grpo_cli.recipe.sections.recipe import Model, Recipe
from grpo_cli.rollout.vllm import server
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.sizing.fit import ask_of
from grpo_verifiers.verdict import Outcome
from tests.builders.chat_models import make_model, make_tokenizer
from tests.cli.test_check_models import ROWS, recipe_in
from tests.reference.families import write_checkpoint


def train_error(recipe: Recipe, folder: Path) -> UserError:
    """What the command refuses the recipe with."""
    with pytest.raises(UserError) as caught:
        _launch_ranks(recipe, folder, begins=True, is_stdin=False)
        if recipe.stages is not None:
            StageChain(recipe, label="r", base=folder, display=lambda: make_display("none")).run()
        Job(recipe, label="r", base=folder, display=make_display("none")).run()
    return caught.value


def failures(recipe: Recipe, folder: Path, **more: Any) -> list[CheckFinding]:
    """What check fails with."""
    return [one for one in RecipeCheck(recipe, folder, **more).findings() if one.level.value == "fail"]


def same(recipe: Recipe, folder: Path, words: str, code: int) -> None:
    error = train_error(recipe, folder)
    wanted = failed("", error)
    assert words in wanted.message and wanted.code == code, wanted
    found = [(one.message, one.hint, one.code) for one in failures(recipe, folder)]
    assert (wanted.message, wanted.hint, wanted.code) in found, (wanted, found)


def test_a_critic_of_a_family_with_other_names_for_its_sizes_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train = {"algorithm": "ppo", "critic": {"from": str(write_checkpoint("gpt2", tmp_path))}}
    same(recipe_in(tmp_path, train=train), tmp_path, "has another tokenizer than the policy", 4)


NOWHERE = {"nodes": 2, "node_rank": 0, "rendezvous": "no-such-host.invalid:29500"}
PHASE = {"steps": 1, "lr": 1e-3, "batch": 1}
SFT: dict[str, dict[str, Any]] = {"train": {"method": "sft"}}
PREFER: dict[str, dict[str, Any]] = {"train": {"method": "prefer"}}
PPO: dict[str, Any] = {"algorithm": "ppo"}
B = {"name": "b"}
IN_A_RUN = {"graph", "long canary", "unfilled warm-up", "unfilled sft", "shared critic", "own rows", "held-out samples"}
"""What is met once the run has its folder: engines, evaluation and the parts of a trainer are made in it."""
CASES: dict[str, tuple[dict[str, Any], str, int]] = {
    "gpus": ({"launch": {"gpus": 4}}, "asks for 4 GPUs, there are none here", 4),
    "ranks": ({"launch": {"cpu_ranks": 3}}, "do not divide over 3 processes", 4),
    "machines": ({"launch": {**NOWHERE, "nodes": 3}}, "do not divide over 3 machines", 2),
    "unnumbered": ({"launch": {"nodes": 2, "rendezvous": "localhost:29500"}}, "which of the 2 machines", 4),
    "rendezvous": ({"launch": NOWHERE}, "does not know the host `no-such-host.invalid`", 4),
    "one process": ({"launch": {"cpu_ranks": 1, "strategy": "fsdp2"}}, "and there is one", 4),
    "deepspeed": ({"launch": {"cpu_ranks": 2, "strategy": "zero2"}}, "needs the package `deepspeed`", 4),
    "vllm": ({"sample": {"engine": "vllm"}}, "needs the package `vllm`", 4),
    "wandb": ({"run": {"track": ["wandb"]}}, "needs the package `wandb`", 4),
    "trackio": ({"run": {"track": ["trackio"]}}, "needs the package `trackio`", 4),
    "mlflow": ({"run": {"track": ["mlflow"]}}, "needs the package `mlflow`", 4),
    "webhook": ({"run": {"webhook": "env:NO_SUCH"}}, "the variable NO_SUCH, which is not set", 4),
    "bad name": ({"run": {"name": "a/b"}}, "cannot name a run", 2),
    "bitsandbytes": ({"train": {"trl": {"optim": "paged_adamw_8bit"}}}, "package `bitsandbytes`", 4),
    "xla": ({"train": {"trl": {"optim": "adamw_torch_xla"}}}, "package `torch-xla`", 4),
    "liger": ({"train": {"trl": {"use_liger_kernel": True}}}, "needs the package `liger-kernel`", 4),
    "flash": ({"model": {"attention": "flash_attention_2"}}, "needs the package `flash-attn`", 4),
    "attention": ({"model": {"attention": "nonsense"}}, "cannot load the model", 4),
    "tokenizer": ({"model": {"tokenizer": "./no"}}, "no tokenizer folder `./no`", 4),
    "base": ({"model": {"base": "other"}}, "`model.base` is that of a LoRA folder", 2),
    "target": ({"model": {"lora": {"targets": ["q_proj", "lm_head"]}}}, "the model's output head", 2),
    "router": ({"train": {"trl": {"router_aux_loss_coef": 0.1}}}, "no router's loss to weigh", 2),
    "4 bits": ({"model": {"load_in_4bit": True, "lora": {}}}, "`model.load_in_4bit` needs a CUDA", 4),
    "ban": ({"sample": {"ban": ["no"]}}, "`no` is 2 tokens", 2),
    "all ends": ({"sample": {"ban": ["<|im_end|>"]}}, "takes every token away that ends", 2),
    "no room": ({"sample": {"max_tokens": 256}}, "`sample.max_tokens` is 256, the model's context only", 4),
    "no room to evaluate": ({"eval": {"max_tokens": 256}}, "`eval.max_tokens` is 256", 4),
    "long prompts": ({"data": {"max_prompt_tokens": 3}}, "every prompt is over 3 tokens", 3),
    "canary trained on": ({"monitor": {"canary": {"from": "rows.jsonl"}}}, "a canary row is a training row too", 3),
    "canary": ({"monitor": {"canary": {"from": "no.jsonl"}}}, "no file `no.jsonl`", 3),
    "graph": ({"sample": {"engine": "graph"}}, "cannot drive this model", 4),
    "long canary": ({"monitor": {"canary": {"from": "long.jsonl"}}}, "every prompt is over 240 tokens", 3),
    "unfilled warm-up": ({"warmup": [PHASE | {"demonstration": "{nope}"}]}, "`warmup[0].demonstration`: no col", 3),
    "unfilled sft": ({**SFT, "sft": [PHASE | {"demonstration": "{nope}"}]}, "`sft[0].demonstration`: no column", 3),
    "own rows": ({"warmup": [PHASE | {"demonstration": "5", "data": "no.jsonl"}]}, "no file `no.jsonl`", 3),
    "held-out samples": (
        {**SFT, "sft": [PHASE | {"demonstration": "5", "data": "run:old/r"}]},
        "samples of 1 held-out",
        3,
    ),
    "strange pairs": ({**PREFER, "prefer": {"data": "strange.jsonl"}}, "of rows that the recipe does not train on", 3),
    "long pairs": ({**PREFER, "prefer": {"data": "pairs.jsonl"}}, "no pair of `pairs.jsonl` fits the model's 256", 3),
    "shared critic": ({"train": PPO | {"critic": {"from": "./no"}}}, "`train.critic.from: ./no`: no model folder", 4),
    "stage without a model": ({"stages": [{"name": "a", "model": {"path": "./no"}}, B]}, "no model folder", 4),
    "stage that is not filled": ({"stages": [{"name": "a", "sample": {"prompts": 64}}, B]}, "do not fill one", 3),
    "stage with a router": (
        {"stages": [{"name": "a"}, B | {"train": {"trl": {"router_aux_loss_coef": 1}}}]},
        "no router",
        2,
    ),
    "stage without a column": ({"stages": [{"name": "a", "data": {"prompt": "{nope}"}}, B]}, "`nope` in 4 of", 3),
}


def case_in(name: str, folder: Path) -> dict[str, Any]:
    """The sections of a case, with the files that it names."""
    sections = CASES[name][0]
    if "model" in sections:
        make_model(folder / "tiny")
        sections = {"model": {"path": str(folder / "tiny"), **sections["model"]}}
    if name == "graph":
        stateful(folder / "tiny")
    long = {"question": "a b c " * 2000, "answer": "10"}
    (folder / "long.jsonl").write_text(json.dumps(long))
    for file, prompt in (("pairs.jsonl", ROWS[0]["question"]), ("strange.jsonl", "Why?")):
        pair = {"prompt": prompt, "chosen": "a b c " * 2000, "rejected": "no"}
        (folder / file).write_text(json.dumps(pair))
    if name == "held-out samples":
        asked = "Half of twenty, please"
        fields = {"question": asked, "answer": "10"}
        sample = SampleRecord(1, "h", "1/0", asked, "10", fields, outcome=Outcome.RIGHT, tokens=1)
        RunFolder.create("old", "r", "", {}).write_samples(1, [sample])
    return sections


@pytest.mark.parametrize("name", CASES)
def test_check_says_what_train_refuses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sections, (_, words, code) = case_in(name, tmp_path), CASES[name]
    same(recipe_in(tmp_path, **sections), tmp_path, words, code)
    assert name in IN_A_RUN or name.startswith("stage") or not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "name", [name for name, (sections, *_) in CASES.items() if not sections.keys() & {"launch", "run", "stages"}]
)
def test_check_says_it_of_a_later_stage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sections, (_, words, code) = case_in(name, tmp_path), CASES[name]
    recipe = recipe_in(tmp_path, stages=[{"name": "a"}, B | sections])
    assert (code, True) in [(one.code, words in one.message) for one in failures(recipe, tmp_path)]


def test_samples_of_an_earlier_stage_are_not_missed(tmp_path: Path) -> None:
    later = SFT | B | {"sft": [PHASE | {"demonstration": "{completion}", "data": "run:a"}]}
    assert not failures(recipe_in(tmp_path, stages=[{"name": "a"}, later]), tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("attention_bias", "x", '`attention_bias` is "x": transformers takes bool there'),
        ("num_hidden_layers", None, "`num_hidden_layers` is null: transformers takes int there"),
        ("rms_norm_eps", 1, "`rms_norm_eps` is 1: transformers takes float there"),
        ("eos_token_id", True, "`eos_token_id` is true: transformers takes int or list[int] or null there"),
        ("attention_dropout", 2.5, "`attention_dropout` is 2.5: a share that is dropped is at least 0 and below 1"),
        ("attention_dropout", -1, "`attention_dropout` is -1: a share"),
        ("initializer_range", 2.5, "`initializer_range` is 2.5: transformers takes 0 to 1 there"),
        ("num_attention_heads", 0, "`num_attention_heads` is 0: it is a size of 1 to 10,000"),
        ("num_hidden_layers", 10**12, "`num_hidden_layers` is 1000000000000: it is a size"),
        ("head_dim", -1, "`head_dim` is -1: it is a size of 0 to 100,000"),
        ("hidden_act", "x", '`hidden_act` is "x": transformers has no such activation'),
        ("attention_dropout", None, "`attention_dropout` is null: "),
        ("attention_bias", True, "8 tensors are missing from the weights"),
        ("intermediate_size", ..., "6 tensors have another shape than `config.json` says"),
        ("hidden_size", ..., "20 tensors have another shape than `config.json` says"),
        ("num_hidden_layers", ..., "270 tensors are missing from the weights"),
        ("model_type", ["x"], "which transformers"),
        ("torch_dtype", "x", '`torch_dtype` is "x": that is no type of weights'),
        ("dtype", [1, 2], "`dtype` is [1, 2]: that is no type of weights"),
    ],
)
def test_a_value_of_a_configuration_that_loading_would_not_take(
    name: str, value: object, words: str, tmp_path: Path
) -> None:
    config = make_model(tmp_path / "tiny") / "config.json"
    changed = json.loads(config.read_text()) | {name: value}
    config.write_text(json.dumps({key: own for key, own in changed.items() if own is not ...}))
    same(recipe_in(tmp_path), tmp_path, words, 4)


def test_no_value_that_transformers_takes_is_refused(tmp_path: Path) -> None:
    config = make_model(tmp_path / "tiny") / "config.json"
    taken = {"attention_dropout": 0, "dtype": "torch.float32", "eos_token_id": [1, 2]}
    config.write_text(json.dumps(json.loads(config.read_text()) | taken | {"mine": "x"}))
    refuse_flaws(Model(path=str(tmp_path / "tiny")))


def stateful(folder: Path) -> None:
    """A model that keeps a recurrent state."""
    tokenizer = make_tokenizer("qwen3")
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    config = AutoConfig.for_model(
        "mamba", hidden_size=32, state_size=4, num_hidden_layers=1, vocab_size=len(tokenizer), **ids
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_run_that_exists_is_refused_by_both(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, run={"name": "mine"})
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    same(recipe, tmp_path, "exists already", 2)


@pytest.mark.parametrize("what", ["other settings", "no weights", "other base"])
def test_an_adapter_folder_is_looked_at_by_both(what: str, tmp_path: Path) -> None:
    import torch

    from grpo_cli.policy.model import load_model

    base, adapter = make_model(tmp_path / "tiny"), tmp_path / "adapter"
    start = Model.model_validate({"path": str(base), "lora": {"r": 2}})
    load_model(start, device=torch.device("cpu"), seed=0).model.save_pretrained(adapter)
    model: dict[str, Any] = {"path": str(adapter), "base": str(base)}
    if what == "other settings":
        words, code, model["lora"] = "has `r` 2, and `model.lora` asks for 8", 2, {"r": 8}
    elif what == "no weights":
        (adapter / "adapter_model.safetensors").unlink()
        words, code = "holds no weights of an adapter", 4
    else:
        model["base"] = str(make_model(tmp_path / "other", num_hidden_layers=1))
        words, code = "has no place on this base for 14 tensors", 4
    same(recipe_in(tmp_path, model=model), tmp_path, words, code)


@pytest.mark.parametrize(
    ("hidden", "sections", "words"),
    [
        ("gguf", {"model": {"path": "m.gguf"}}, "needs the package `gguf`"),
        ("peft", {"model": {"path": "tiny", "lora": {}}}, "needs the package `peft`"),
        ("tensorboard", {"run": {"track": ["tensorboard"]}}, "needs the package `tensorboard`"),
    ],
)
def test_packages_that_are_here_are_missed_where_they_are_not(
    hidden: str, sections: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = packages.find_spec
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name.startswith(hidden) else here(name))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").touch()
    same(recipe_in(tmp_path, **sections), tmp_path, words, 4)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"sample": {"engine": "vllm", "vllm": {"mode": "server"}}}, "over NCCL, which needs a CUDA device"),
        ({"model": {"load_in_4bit": True, "lora": {}}}, "`model.load_in_4bit` needs a CUDA device"),
        ({"train": {"offload": "activations"}}, "`train.offload` needs a CUDA device"),
    ],
)
def test_what_needs_a_gpu_is_refused_without_one(
    sections: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_installed", lambda name: True)
    monkeypatch.setattr(packages, "find_spec", lambda name: object())
    model = {"path": str(make_model(tmp_path / "tiny"))}
    recipe = recipe_in(tmp_path, **{**sections, "model": {**model, **sections.get("model", {})}})
    same(recipe, tmp_path, words, 4)
    elsewhere = failures(recipe, tmp_path, ask=ask_of("h100", None))
    assert not any(words in one.message for one in elsewhere)


def test_cards_that_a_person_names_are_asked_about_in_place_of_this_machine(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, launch={"gpus": 4})
    assert [one.check for one in failures(recipe, tmp_path)] == ["launch"]
    assert failures(recipe, tmp_path, ask=ask_of("h100", None)) == []


@pytest.mark.parametrize(
    ("train", "sample", "words"),
    [
        ({"mini_batches": 8}, {}, "4 completions on each of 2 processes do not divide into 8 mini-batches"),
        (
            {"trl": {"top_entropy_quantile": 0.5, "entropy_coef": 0.1}, "dead_groups": "keep"},
            {},
            "`train.trl.top_entropy_quantile` is taken over one micro-batch at a time",
        ),
    ],
)
def test_a_step_that_several_processes_cannot_share_is_refused_by_check(
    train: dict[str, Any], sample: dict[str, Any], words: str, tmp_path: Path
) -> None:
    recipe = recipe_in(tmp_path, launch={"cpu_ranks": 2}, train=train, sample=sample)
    (found,) = failures(recipe, tmp_path)
    assert words in found.message and (found.check, found.code) == ("batches", Exit.USAGE)


def test_a_critic_that_reads_other_tokens_is_refused_by_both(tmp_path: Path) -> None:
    make_model(tmp_path / "other", "llama3")
    critic = {"algorithm": "ppo", "critic": {"from": str(tmp_path / "other")}}
    same(recipe_in(tmp_path, train=critic), tmp_path, "has another tokenizer than the policy", 4)


@pytest.mark.parametrize("at", [0, 2])
def test_a_row_on_which_the_world_shows_no_action_is_named_by_both(at: int, tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "class World:\n"
        "    def reset(self, row, seed):\n        self.row = row\n        return ''\n"
        "    def step(self, action):\n        return {'observation': '', 'reward': 0.0, 'done': True}\n"
        f"    def demonstrate(self):\n        if self.row['answer'] == '{at + 3}':\n            raise ValueError('lost')\n"
        "        return 'a'\n"
    )
    world = {
        "model": {"path": "builtin:tiny"},
        "environment": {"python": "w.py:World", "workers": 1},
        "verify": {"environment": {"kind": "environment"}},
        "sample": {"max_tokens": 64},
    }
    words = f"rows.jsonl:{at + 1}: `demonstrate` of `World` raised ValueError: lost"
    same(recipe_in(tmp_path, **world, warmup=[PHASE]), tmp_path, words, 3)


def test_a_world_that_says_too_much_is_refused_by_both(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "class World:\n"
        "    def reset(self, row, seed):\n        return 'a b ' * 500\n"
        "    def step(self, action):\n        return {'observation': '', 'reward': 0.0, 'done': True}\n"
    )
    world = {
        "model": {"path": "builtin:tiny"},
        "environment": {"python": "w.py:World", "workers": 1},
        "verify": {"environment": {"kind": "environment"}},
        "sample": {"max_tokens": 64},
    }
    same(recipe_in(tmp_path, **world), tmp_path, "tokens with what the environment says at the start", 3)


@pytest.mark.parametrize(
    ("file", "key", "value", "words", "is_full"),
    [
        ("tokenizer.json", "added_tokens", None, "holds no tokenizer: it has no `added_tokens`", False),
        ("tokenizer.json", "model", {"type": "x"}, "cannot load the tokenizer of `", False),
        ("config.json", "rope_parameters", {"rope_type": "x", "rope_theta": 1.0}, "cannot load the", True),
    ],
)
def test_files_that_a_library_refuses_are_refused_by_both(
    file: str, key: str, value: object, words: str, is_full: bool, tmp_path: Path
) -> None:
    make_model(tmp_path / "tiny")
    held = json.loads((tmp_path / "tiny" / file).read_text())
    (tmp_path / "tiny" / file).write_text(json.dumps(held | {key: value}))
    recipe = recipe_in(tmp_path)
    wanted = failed("", train_error(recipe, tmp_path))
    assert words in wanted.message
    assert wanted.message in [one.message for one in failures(recipe, tmp_path, is_full=is_full)]


def test_a_recipe_on_stdin_for_several_processes_is_refused_by_both(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, launch={"cpu_ranks": 2})
    with pytest.raises(UserError, match="a recipe on stdin runs in one process") as caught:
        _launch_ranks(recipe, tmp_path, begins=True, is_stdin=True)
    (found,) = failures(recipe, tmp_path, is_stdin=True)
    assert (found.message, found.hint, found.code) == (str(caught.value), caught.value.hint, caught.value.code)


def test_a_warm_up_without_demonstrations_needs_a_world_that_shows_some(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(
        "class World:\n"
        "    def reset(self, row, seed):\n        return ''\n"
        "    def step(self, action):\n        return {'observation': '', 'reward': 0.0, 'done': True}\n"
    )
    recipe = recipe_in(
        tmp_path,
        model={"path": "builtin:tiny"},
        environment={"python": "w.py:World", "workers": 1},
        verify={"environment": {"kind": "environment"}},
        sample={"max_tokens": 64},
    )
    phases = [{"steps": 1, "lr": 1e-3, "batch": 1}]
    recipe = Recipe.model_validate({**recipe.model_dump(by_alias=True, exclude_none=True), "warmup": phases})
    error = train_error(recipe, tmp_path)
    assert "has no method `demonstrate`" in str(error)
    shutil.rmtree(tmp_path / "runs")
    assert failed("", error).message in [one.message for one in failures(recipe, tmp_path)]


def test_a_disk_without_room_for_a_checkpoint_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 10))
    recipe = recipe_in(tmp_path)
    (found,) = failures(recipe, tmp_path)
    error = train_error(recipe, tmp_path)
    assert found.message.split(" are free in ")[0] == str(error).split(" are free in ")[0]
    assert (found.check, found.code, found.hint) == ("run", error.code, error.hint)


def test_a_stage_is_asked_for_too_and_a_sentence_is_said_once(tmp_path: Path) -> None:
    stage = {"name": "b", "data": {"train": "gone.jsonl"}, "train": {"trl": {"optim": "adamw_bnb_8bit"}}}
    recipe = recipe_in(tmp_path)
    whole = recipe.model_dump(by_alias=True, exclude_none=True) | {"stages": [{"name": "a"}, stage]}
    found = failures(Recipe.model_validate(json.loads(json.dumps(whole))), tmp_path)
    said = [one.message for one in found]
    assert sum("bitsandbytes" in text for text in said) == 1 and sum("gone.jsonl" in text for text in said) == 1


def test_a_server_that_is_not_up_yet_is_unknown_and_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_installed", lambda name: True)
    vllm = {"mode": "server", "server_base_url": "http://127.0.0.1:9"}
    recipe = recipe_in(tmp_path, sample={"engine": "vllm", "vllm": vllm})
    found = [one for one in RecipeCheck(recipe, tmp_path, ask=ask_of("h100", None)).findings() if one.check == "engine"]
    assert [one.level.value for one in found] == ["unknown"] and "no vLLM server is up" in found[0].message


NOT_TAKEN: dict[str, tuple[dict[str, Any], str]] = {
    "tf32": ({"tf32": True}, "train.trl.tf32: "),
    "both": ({"fp16": True, "bf16": True}, "train.trl.fp16, train.trl.bf16: "),
    "unknown argument of the schedule": (
        {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"power": 2}},
        "unexpected keyword argument 'power'",
    ),
    "a text for a number": (
        {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": "x"}},
        "train.trl.lr_scheduler_kwargs: ",
    ),
    "a schedule without what it needs": (
        {"lr_scheduler_type": "warmup_stable_decay", "weight_decay": 0.1},
        "train.trl.lr_scheduler_type: ",
    ),
    "a schedule of evaluations": ({"lr_scheduler_type": "greedy"}, "train.trl.lr_scheduler_type: "),
    "no pair": ({"optim_args": "x"}, "train.trl.optim_args: "),
    "a name that Adam does not read": ({"optim_args": "eps=abc"}, "`adamw_torch_fused` reads no `eps` of it"),
    "a name that nothing reads": ({"optim": "sgd", "optim_args": "momentum=0.9,foo=1"}, "`sgd` reads no `foo` of it"),
    "a name that the groups of parameters have": ({"optim": "sgd", "optim_args": "weight_decay=1"}, "`weight_decay`"),
    "a truth value": ({"optim": "sgd", "optim_args": "momentum=.9,nesterov=on"}, "reads `nesterov=on` as false"),
    "Adam's for another": ({"optim": "sgd", "adam_beta1": 0.5}, "`sgd` reads no `adam_beta1`"),
    "no argument of recomputing": (
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"x": 1}},
        "unexpected keyword argument 'x'",
    ),
    "no share": ({"top_entropy_quantile": -1.0}, "quantile() q must be in the range"),
    "nothing ahead": ({"dataloader_num_workers": 1, "dataloader_prefetch_factor": 0}, "0 batches ahead"),
    "batches that are sent": ({"accelerator_config": {"dispatch_batches": True}}, "`dispatch_batches` sends tensors"),
    "parts of a batch": (
        {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 3}}},
        "`num_steps` follows from",
    ),
    "no argument of parts": (
        {"accelerator_config": {"gradient_accumulation_kwargs": {"x": 3}}},
        "unexpected keyword argument 'x'",
    ),
    "a reference that moves": ({"sync_ref_model": True}, "train.trl.sync_ref_model: "),
    "no backend": ({"torch_compile_backend": ""}, "train.trl.torch_compile_backend: "),
    "below nothing": ({"optim": "sgd", "optim_args": "momentum=-3"}, "Invalid momentum value"),
    "beta": ({"adam_beta2": 5.0}, "train.trl.adam_beta2: "),
    "epsilon": ({"adam_epsilon": float("nan")}, "train.trl.adam_epsilon: "),
    "compile mode": ({"torch_compile_mode": "nonsense"}, "train.trl.torch_compile_mode: "),
    "noise": ({"neftune_noise_alpha": -1.0}, "train.trl.neftune_noise_alpha: "),
    "workers": ({"dataloader_num_workers": -1}, "train.trl.dataloader_num_workers: "),
    "workers that stay": ({"dataloader_persistent_workers": True}, "train.trl.dataloader_persistent_workers"),
    "padding": ({"pad_to_multiple_of": 0}, "train.trl.pad_to_multiple_of: "),
    "accelerate": ({"accelerator_config": {"x": 1}}, "train.trl.accelerator_config: "),
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_settings_that_a_library_does_not_take_are_refused_by_both(name: str, tmp_path: Path) -> None:
    trl, words = NOT_TAKEN[name]
    recipe = recipe_in(tmp_path, train={"trl": trl})
    same(recipe, tmp_path, words, Exit.USAGE)
    assert not (tmp_path / "runs").exists()
    assert failures(recipe, tmp_path, ask=ask_of("h100", None)) == []
