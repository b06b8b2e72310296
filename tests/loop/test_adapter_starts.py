"""A LoRA folder or a run as the start of another run: opened the same way for training, measuring and exporting."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from grpo_cli.display.choose import make_display
from grpo_cli.errors import DataError, RecipeError, SetupError
from grpo_cli.jobs.export.folder import write_folder
from grpo_cli.jobs.train.job import Job
from grpo_cli.policy.model import byte_tokenizer, load_config, load_model, tiny_llama
from grpo_cli.recipe.sections.inputs import Model
from grpo_cli.resilience.checkpoint import pinned
from grpo_cli.resilience.model_source import find_model_source, open_model
from grpo_cli.run.folder import RunFolder
from tests.builders.workplaces import tiny_recipe

CPU = torch.device("cpu")
ROWS = [{"question": f"{i}+{i}"} for i in range(8)]
IDS = torch.tensor([[5, 9, 17, 30, 41]])


def trained(folder: Path, name: str, model: dict[str, Any], **train: Any) -> RunFolder:
    recipe = tiny_recipe(
        folder, ROWS, model=model, train={"steps": 2, "lr": 2e-2, "dead_groups": "keep", "kl": {"beta": 0.01}, **train},
        run={"dir": str(folder / "runs"), "name": name}, monitor={"kl": "off"},
    )  # fmt: skip
    job = Job(pinned(recipe), label=name, base=folder, display=make_display("none"))
    job.run()
    return job.running.folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "base"
    tokenizer = byte_tokenizer()
    tiny_llama(tokenizer, 3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(base: Path) -> Path:
    """An adapter of rank 4 as PEFT alone saves it: no tokenizer, no recipe."""
    from peft import LoraConfig, get_peft_model

    folder = base.parent / "adapter"
    torch.manual_seed(1)
    model = get_peft_model(
        load_model(Model(path=str(base)), device=CPU, seed=0).model,
        LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.05)
    model.save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def merged(base: Path, adapter: Path) -> torch.Tensor:
    """Logits of base + adapter by PEFT alone."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return logits(PeftModel.from_pretrained(whole, str(adapter)).merge_and_unload())


def test_every_way_to_open_an_adapter_is_base_and_adapter(base: Path, adapter: Path, tmp_path: Path) -> None:
    expected = merged(base, adapter)
    plain = logits(load_model(Model(path=str(base)), device=CPU, seed=0).model)
    assert not torch.allclose(expected, plain, atol=1e-3)
    for training in (True, False):
        policy = load_model(Model(path=str(adapter)), device=CPU, seed=0, training=training)
        assert torch.allclose(logits(policy.model), expected, atol=1e-5)
        assert any(p.requires_grad for p in policy.model.parameters()) == training
        assert policy.tokenizer("1+1").input_ids == byte_tokenizer()("1+1").input_ids


def test_training_goes_on_from_an_adapter_and_is_measured_with_it(base: Path, adapter: Path, tmp_path: Path) -> None:
    run = trained(tmp_path, "more", {"path": str(adapter)})
    saved = run.checkpoint_path(2)
    before, after = (load_file(f / "adapter_model.safetensors") for f in (adapter, saved))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    expected = merged(base, saved)
    place = find_model_source(str(run.path), None, [])
    assert torch.allclose(logits(open_model(place, CPU).model), expected, atol=1e-5)
    write_folder(find_model_source(str(run.path), None, []), tmp_path / "out")
    whole = load_model(Model(path=str(tmp_path / "out")), device=CPU, seed=0)
    assert torch.allclose(logits(whole.model), expected, atol=1e-5)
    assert f"goes on with the adapter in {adapter} (rank 4) on {base}" in run.log_path.read_text()


def test_an_adapter_of_an_adapter_and_a_run_as_the_start(tmp_path: Path) -> None:
    first = trained(tmp_path, "first", {"path": "builtin:tiny", "lora": {"r": 4}}, seed=5)
    expected = logits(open_model(find_model_source(str(first.path), None, []), CPU).model)
    start = load_model(Model(path=str(first.checkpoint_path(2))), device=CPU, seed=77)
    assert torch.allclose(logits(start.model), expected, atol=1e-6)
    second = trained(tmp_path, "second", {"path": str(first.path)}, steps=4)
    assert f"path: {first.checkpoint_path(2)}" in second.recipe_text
    third = trained(tmp_path, "third", {"path": str(second.path)}, steps=1, lr=1e-12)
    two, three = (logits(open_model(find_model_source(str(r.path), None, []), CPU).model) for r in (second, third))
    assert torch.allclose(two, three, atol=1e-5)
    assert not torch.allclose(two, expected, atol=1e-4)


def test_a_run_of_whole_weights_as_the_start(tmp_path: Path) -> None:
    first = trained(tmp_path, "first", {"path": "builtin:tiny"})
    second = trained(tmp_path, "second", {"path": str(first.path)}, steps=1, lr=1e-12)
    one, two = (load_file(r.checkpoint_path(s) / "model.safetensors") for r, s in ((first, 2), (second, 1)))
    assert all(torch.allclose(value, two[name], atol=1e-6) for name, value in one.items())
    shutil.rmtree(first.path / "checkpoints")
    with pytest.raises(DataError, match="has no whole checkpoint"):
        trained(tmp_path, "third", {"path": str(first.path)})


@pytest.mark.parametrize(
    ("lora", "words"),
    [({"r": 16}, "`r` 4.* asks for 16"), ({"r": 4, "alpha": 32}, "`alpha` 8.* asks for 32"), ({"r": 4, "targets": ["q_proj"]}, "targets")],
)  # fmt: skip
def test_other_lora_settings_beside_an_adapter_are_refused(lora: dict[str, Any], words: str, adapter: Path) -> None:
    with pytest.raises(RecipeError, match=words):
        load_model(Model.model_validate({"path": str(adapter), "lora": lora}), device=CPU, seed=0)


def test_the_same_lora_settings_beside_an_adapter_go_on(adapter: Path, base: Path) -> None:
    spec = Model.model_validate({"path": str(adapter), "lora": {"r": 4}})
    assert torch.allclose(logits(load_model(spec, device=CPU, seed=0).model), merged(base, adapter), atol=1e-5)


def copied(adapter: Path, to: Path, base_name: object) -> Path:
    shutil.copytree(adapter, to)
    config = json.loads((to / "adapter_config.json").read_text())
    (to / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": base_name}))
    return to


@pytest.mark.parametrize("name", ["/gone/base", None, ""])
def test_a_base_that_is_not_here_can_be_named(name: object, adapter: Path, base: Path, tmp_path: Path) -> None:
    moved = copied(adapter, tmp_path / "moved", name)
    with pytest.raises(SetupError, match="base") as caught:
        load_model(Model(path=str(moved)), device=CPU, seed=0)
    assert "base: MODEL" in caught.value.hint
    named = Model(path=str(moved), base=str(base))
    assert torch.allclose(logits(load_model(named, device=CPU, seed=0).model), merged(base, adapter), atol=1e-5)
    assert load_config(named).vocab_size == 266


def test_an_adapter_that_lacks_tensors_or_has_others_is_refused(adapter: Path, tmp_path: Path) -> None:
    for name, change in (
        ("less", lambda held: held.pop(sorted(held)[0])),
        ("more", lambda held: held.update({"base_model.model.lm_other.lora_A.weight": torch.zeros(1)})),
    ):
        folder = tmp_path / name
        shutil.copytree(adapter, folder)
        held = load_file(folder / "adapter_model.safetensors")
        change(held)
        save_file(held, folder / "adapter_model.safetensors")
        with pytest.raises(SetupError, match="1 tensors, first"):
            load_model(Model(path=str(folder)), device=CPU, seed=0)


def test_a_base_beside_a_whole_model_means_nothing(base: Path) -> None:
    with pytest.raises(RecipeError, match=r"`model.base`"):
        load_model(Model(path=str(base), base="other"), device=CPU, seed=0)


def test_a_run_can_be_named_where_a_checkpoint_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (trained(tmp_path, name, {"path": "builtin:tiny"}, steps=1) for name in ("one", "two"))
    monkeypatch.chdir(tmp_path)
    assert find_model_source("one", None, []).folder == Path("runs/one/checkpoints/step-000001")
    assert find_model_source("last", None, []).folder == Path("runs/two/checkpoints/step-000001")
    assert find_model_source(str(one.path), None, []).folder == one.checkpoint_path(1)
    with pytest.raises(DataError) as caught:
        find_model_source("onne", None, [])
    assert "did you mean the run `one`?" in caught.value.hint
    write_folder(find_model_source("last", None, []), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert two.path.is_dir()
    monkeypatch.chdir(tmp_path / "out")
    with pytest.raises(DataError, match="no run under"):
        find_model_source("last", None, [])
