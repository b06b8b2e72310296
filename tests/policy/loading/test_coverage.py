"""Which layers an adapter is on, and which share of the weights has none: by the files, without weights, and as loaded."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from grpo_cli.distributed.ranks import Ranks
from grpo_cli.errors import Exit, UserError
from grpo_cli.jobs.check.findings import CheckFinding
from grpo_cli.jobs.check.model import check_model
from grpo_cli.jobs.open_job import open_rows
from grpo_cli.jobs.train.setup import open_train_job
from grpo_cli.policy.loading.adapter import attach_shapes
from grpo_cli.policy.loading.coverage import coverage
from grpo_cli.policy.loading.inspection import flaws
from grpo_cli.policy.model import attach_lora, load_model, meta_model
from grpo_cli.recipe.sections.recipe import Lora, Model
from tests.builders.chat_models import make_model, make_tokenizer
from tests.builders.workplaces import Told, tiny_recipe

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
MORE = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "bos_token_id": None}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}


def made(folder: Path, kind: str, **config: Any) -> Path:
    """A saved model of a type of transformers, with random weights."""
    tokenizer = make_tokenizer("qwen3")
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {**SIZES, **MORE, **EXPERTS, **ids, "vocab_size": len(tokenizer), **config}
    AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def checked(model: Model) -> CheckFinding:
    """What check says of the adapter."""
    recipe = tiny_recipe(Path(model.path).parent, [{"question": "a"}], model=model.model_dump())
    (found,) = [one for one in check_model(recipe) if one.check == "adapter"]
    return found


@pytest.mark.parametrize(
    ("kind", "targets", "covered", "left"),
    [
        ("qwen3", "all-linear", ATTENTION | {"gate_proj", "up_proj", "down_proj"}, "embed_tokens"),
        ("qwen3", ["q_proj", "layers.0.mlp.up_proj"], {"q_proj", "up_proj"}, "down_proj"),
        ("gpt_oss", "all-linear", ATTENTION, "experts.gate_up_proj"),
        ("qwen3_moe", ["q_proj"], {"q_proj"}, "experts.down_proj"),
        ("qwen3_moe", ["gate_proj", "up_proj"], {"experts.gate_up_proj"}, "experts.down_proj"),
        ("gpt2", "all-linear", {"c_attn", "c_fc", "c_proj"}, "wte"),
    ],
)
def test_check_says_of_an_adapter_what_loading_makes_of_it(
    kind: str, targets: Any, covered: set[str], left: str, tmp_path: Path
) -> None:
    model = Model(path=str(made(tmp_path / "m", kind)), lora=Lora(r=2, targets=targets))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(rank_pattern|alpha_pattern|fan_in_fan_out).*")
        policy = load_model(model, device=torch.device("cpu"), seed=0)
    found = coverage(policy.model)
    assert set(found.covered) == covered and f"`{left}`" in found.text()
    total = sum(p.numel() for name, p in policy.model.named_parameters() if "lora_" not in name)
    assert sum(found.covered.values()) + sum(found.left.values()) == total
    finding = checked(model)
    assert finding.message == found.text()
    assert finding.level.value == ("note" if "experts." in left else "ok")


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["q_proj", "embed_tokens"], "`embed_tokens` is the model's embeddings of tokens"),
        (["lm_head"], "`lm_head` is the model's output head"),
        (["q_proj", "norm"], "`norm` is no linear layer"),
        (["self_attn"], "`self_attn` is no linear layer"),
        (["q_proj", "k_prj"], "the model has no layer `k_prj`"),
        (["wq"], "the model has no layer `wq`"),
    ],
)
def test_a_target_that_cannot_be_adapted_is_one_sentence_in_check_and_in_loading(
    kind: str, targets: list[str], words: str, is_tied: bool, tmp_path: Path
) -> None:
    folder = made(tmp_path / "m", kind, tie_word_embeddings=is_tied)
    model = Model(path=str(folder), lora=Lora(r=2, targets=targets))
    with pytest.raises(UserError) as caught:
        load_model(model, device=torch.device("cpu"), seed=0)
    assert words in str(caught.value) and "q_proj" in caught.value.hint
    found = checked(model)
    assert (found.level.value, found.code) == ("fail", Exit.USAGE)
    assert found.message == f"`model.lora.targets`: {caught.value}" and found.hint == caught.value.hint


def test_a_model_that_peft_refuses_is_refused_by_check(tmp_path: Path) -> None:
    model = Model(path=str(made(tmp_path / "m", "mamba", state_size=4)), lora=Lora(r=2))
    with pytest.raises(UserError, match="incompatible with Mamba"):
        load_model(model, device=torch.device("cpu"), seed=0)
    assert "incompatible with Mamba" in checked(model).message


def test_an_adapter_folder_is_told_with_its_own_layers(tmp_path: Path) -> None:
    base = Model(path=str(make_model(tmp_path / "base")))
    adapted = attach_lora(meta_model(base).to_empty(device="cpu"), Lora(r=2, targets=["q_proj"]))
    adapted.save_pretrained(tmp_path / "adapter")
    model = Model(path=str(tmp_path / "adapter"), base=base.path)
    assert "adapters are on `q_proj`; " in checked(model).message
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_modules": ["q_proj", "v_proj"]}))
    said = checked(model)
    assert said.level.value == "fail" and "lacks 4 tensors" in said.message
    with pytest.raises(UserError, match="lacks 4 tensors"):
        attach_shapes(meta_model(base), tmp_path / "adapter")
    for changed in ({"r": 4}, {"rank_pattern": {"q_proj": 1}}):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"target_modules": ["q_proj"], "r": 2} | changed))
        said = checked(model)
        assert said.level.value == "fail" and "4 tensors of another shape" in said.message
        with pytest.raises(UserError):
            load_model(model, device=torch.device("cpu"), seed=0)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"r": "x"}))
    (flaw,) = flaws(model)
    assert '`r` is "x"' in flaw.message


def test_the_line_is_noted_as_training_begins(tmp_path: Path) -> None:
    model = {"path": "builtin:tiny", "lora": {"r": 2}}
    recipe = tiny_recipe(tmp_path, [{"question": "a"}, {"question": "b"}], model=model)
    told = Told()
    with open_rows(recipe, tmp_path, told.display, ["train"]) as rows:
        place, _ = open_train_job(rows, Ranks.from_environment())
    said = coverage(place.policy.model).text()
    (found,) = [one for one in check_model(recipe) if one.check == "adapter"]
    assert found.message == said and told.notes.count(said) == 1
