"""What a model's files show is refused in one sentence, and `grpo check`, loading and training say the same."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

from grpo_cli.errors import SetupError
from grpo_cli.policy.loading import packages
from grpo_cli.policy.loading.inspection import ModelFlaw, flaws
from grpo_cli.policy.loading.packages import PackageNeed, trainer_needs
from grpo_cli.policy.model import load_model
from grpo_cli.recipe.sections.recipe import Model, Recipe
from tests.builders.chat_models import make_model, make_tokenizer

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "sound")


def copied(sound: Path, folder: Path) -> Path:
    for file in sound.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def config(folder: Path, **keys: Any) -> None:
    file = folder / "config.json"
    said = json.loads(file.read_text()) | keys
    file.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def foreign(folder: Path) -> None:
    config(folder, model_type="mine", auto_map={"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"})
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w').write('x')\n")


def foreign_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    file = folder / "tokenizer_config.json"
    said = json.loads(file.read_text()) | {"auto_map": {"AutoTokenizer": ["mine.T", None]}, "tokenizer_class": "T"}
    file.write_text(json.dumps(said))
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w').write('x')\n")


def other_tokenizer(folder: Path) -> None:
    tokenizer = make_tokenizer("qwen3")
    tokenizer.add_tokens([f"<extra{i}>" for i in range(9)])
    tokenizer.save_pretrained(folder)


def tokenizer(folder: Path, **keys: Any) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": foreign}, folder / "pytorch_model.bin")


def no_tokenizer(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def shape(weights: dict[str, torch.Tensor]) -> None:
    weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(10, 32)


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "there is no `config.json`"),
    "broken config": (lambda folder: (folder / "config.json").write_text("{"), "cannot be read"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "is no JSON object"),
    "an end that is no id": (lambda folder: config(folder, eos_token_id=[1, "x"]), "`eos_token_id` is "),
    "a generation that ends at no id": (
        lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": {"a": {}}}'),
        "`generation_config.json`: `eos_token_id` is ",
    ),
    "heads of a text": (lambda folder: config(folder, num_key_value_heads="x"), "`num_key_value_heads` is "),
    "unknown type": (lambda folder: config(folder, model_type="qwen33"), "`qwen33`, which transformers"),
    "no type": (lambda folder: config(folder, model_type=None), "is of no type"),
    "no language model": (lambda folder: config(folder, model_type="vit"), "has no causal language model"),
    "code of its own": (foreign, "needs code that comes with it"),
    "tokenizer's code": (foreign_tokenizer, "tokenizer of .* needs code that comes with it"),
    "tokenizer's class": (
        lambda folder: tokenizer(folder, auto_map={"AutoTokenizer": ["mine.T", None]}, tokenizer_class="T"),
        "tokenizer of .* needs code that comes with it",
    ),
    "token that is no text": (lambda folder: tokenizer(folder, eos_token=5), "`eos_token` is 5"),
    "length that is no number": (lambda folder: tokenizer(folder, model_max_length="x"), "`model_max_length` is"),
    "tokenizer's settings are a list": (
        lambda folder: (folder / "tokenizer_config.json").write_text("[]"),
        "tokenizer_config.json` cannot be read",
    ),
    "generation is a list": (
        lambda folder: (folder / "generation_config.json").write_text("[]"),
        "generation_config.json` cannot be read",
    ),
    "positions": (lambda folder: config(folder, rope_scaling={"rope_type": "mine"}), '`rope_type` is "mine"'),
    "gptq": (
        lambda folder: config(folder, quantization_config={"quant_method": "gptq", "bits": 4}),
        "`gptq`.* needs the package `optimum`",
    ),
    "bitsandbytes": (
        lambda folder: config(folder, quantization_config={"load_in_4bit": True}),
        "needs the package `bitsandbytes`",
    ),
    "heads": (lambda folder: config(folder, num_attention_heads=3, head_dim=None), "does not divide"),
    "kv heads": (lambda folder: config(folder, num_attention_heads=4, num_key_value_heads=3), "no multiple"),
    "vocabulary": (other_tokenizer, "they do not belong together"),
    "no tokenizer": (no_tokenizer, "holds no tokenizer: there is no `tokenizer.json`"),
    "broken tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "no JSON object"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "`model.safetensors` is missing"),
    "cut weights": (cut, "cannot be read: the file is cut off"),
    "lost tensor": (
        lambda folder: tensors(folder, lambda w: w.__delitem__("model.layers.0.mlp.up_proj.weight")),
        "1 tensors are missing from the weights, first `model.layers.0.mlp.up_proj.weight`",
    ),
    "more layers": (lambda folder: config(folder, num_hidden_layers=3), "9 tensors are missing"),
    "other shape": (
        lambda folder: tensors(folder, shape),
        r"1 tensors have another shape .*up_proj.weight`: \[10, 32\], not \[48, 32\]",
    ),
}


def test_weights_that_would_run_code_are_refused_in_our_words(sound: Path, tmp_path: Path) -> None:
    pickled(copied(sound, tmp_path))
    with pytest.raises(SetupError, match="holds more than numbers") as caught:
        load_model(Model(path=str(tmp_path)), device=torch.device("cpu"), seed=0)
    assert "safetensors" in caught.value.hint and "weights_only" not in str(caught.value)


@pytest.mark.parametrize("name", SPOILED)
def test_what_the_files_show_is_one_sentence_and_loading_says_the_same(
    name: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("something was asked"))
    spoil, words = SPOILED[name]
    spoil(copied(sound, tmp_path))
    (flaw,) = flaws(Model(path=str(tmp_path)))
    assert flaw.is_fatal and "\n" not in flaw.message
    with pytest.raises(SetupError, match=words) as caught:
        load_model(Model(path=str(tmp_path)), device=torch.device("cpu"), seed=0)
    assert str(caught.value) == flaw.message
    assert not (tmp_path / "ran").exists()


def test_a_sound_model_has_no_flaw_and_loads(sound: Path) -> None:
    assert list(flaws(Model(path=str(sound)))) == []
    assert load_model(Model(path=str(sound)), device=torch.device("cpu"), seed=0).vocabulary > 256
    assert list(flaws(Model(path="builtin:tiny"))) == []


def test_code_beside_a_model_of_a_known_type_is_not_run_and_not_needed(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("something was asked"))
    config(copied(sound, tmp_path), auto_map={"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"})
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\n")
    load_model(Model(path=str(tmp_path)), device=torch.device("cpu"), seed=0)
    assert not (tmp_path / "ran").exists()


def test_weights_that_only_the_loader_can_compare_are_not_made_up(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = make_tokenizer("base")
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, vocab_size=len(tokenizer)))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tensors(tmp_path, lambda w: w.__delitem__("transformer.h.1.mlp.c_fc.weight"))
    assert list(flaws(Model(path=str(tmp_path)))) == []
    with pytest.raises(SetupError, match=r"1 tensors are missing .*h.1.mlp.c_fc.weight.*random"):
        load_model(Model(path=str(tmp_path)), device=torch.device("cpu"), seed=0)


@pytest.mark.parametrize(
    ("path", "words", "is_fatal"),
    [
        ("/no/such/folder", "no model folder `/no/such/folder`", True),
        ("./typo", "no model folder `./typo`", True),
        ("runs/a/checkpoints", "no model folder", True),
        ("nobody/nothing-here", "is not here", False),
        ("x.gguf", "no such file: x.gguf", True),
        ("builtin:huge", "no builtin model `builtin:huge`", True),
    ],
)
def test_a_model_that_is_not_here(path: str, words: str, is_fatal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    (flaw,) = flaws(Model(path=path))
    assert words in flaw.message and flaw.hint + path and flaw.is_fatal is is_fatal
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert next(iter(flaws(Model(path=path)))).is_fatal


def test_a_quantised_model_is_trained_through_adapters(sound: Path, tmp_path: Path) -> None:
    config(copied(sound, tmp_path), quantization_config={"quant_method": "fp8"})
    (flaw,) = flaws(Model(path=str(tmp_path)))
    assert isinstance(flaw, ModelFlaw) and not flaw.is_fatal and "model.lora" in flaw.hint


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attention": "nonsense"}, "cannot load the model `.*nonsense"),
        ({"tokenizer": "no/such-tokenizer"}, "cannot load the tokenizer"),
    ],
)
def test_what_libraries_refuse_is_one_sentence(more: dict[str, Any], words: str, sound: Path) -> None:
    with pytest.raises(SetupError, match=words) as caught:
        load_model(Model(path=str(sound), **more), device=torch.device("cpu"), seed=0)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", [KeyError, TypeError, RuntimeError, AttributeError, MemoryError, ZeroDivisionError])
def test_a_library_may_fail_in_any_class_and_a_bug_of_ours_flies(
    kind: type[Exception], sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise kind("first line\n  and what helps")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    with pytest.raises(SetupError, match=r"first line.*and what helps"):
        load_model(Model(path=str(sound)), device=torch.device("cpu"), seed=0)
    ours = FunctionType(fail.__code__, {"__name__": "grpo_cli.policy.model"}, "fail", None, fail.__closure__)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", ours)
    with pytest.raises(kind):
        load_model(Model(path=str(sound)), device=torch.device("cpu"), seed=0)


@pytest.mark.parametrize(
    ("optim", "package"),
    [
        ("adamw_bnb_8bit", "bitsandbytes"),
        ("adamw_8bit", "bitsandbytes"),
        ("paged_adamw_32bit", "bitsandbytes"),
        ("lion_8bit", "bitsandbytes"),
        ("galore_adamw_8bit", "galore-torch"),
        ("schedule_free_radam", "schedulefree"),
        ("adamw_torch_4bit", "torchao"),
        ("adamw_torch_8bit", "torchao"),
        ("adalomo", "lomo-optim"),
        ("adamw_torch_fused", None),
        ("adafactor", None),
        ("sgd", None),
    ],
)
def test_an_optimizer_names_its_package(optim: str, package: str | None) -> None:
    needs = trainer_needs(training({"trl": {"optim": optim}}))
    assert [need.install for need in needs] == ([package] if package else [])


def training(train: dict[str, Any], **sections: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "data": {"train": "a.jsonl", "prompt": "{q}"},
            "verify": {"math": {}},
            "train": {"steps": 1, **train},
            **sections,
        }
    )


@pytest.mark.parametrize(
    ("sections", "words", "mend"),
    [
        ({"run": {"track": ["wandb"]}}, "`run.track: [wandb]` needs the package `wandb`", "grpo-cli[wandb]"),
        ({"run": {"track": ["mlflow"]}}, "needs the package `mlflow`", "grpo-cli[mlflow]"),
        ({"run": {"track": ["tensorboard"]}}, "needs the package `tensorboard`", "grpo-cli[tensorboard]"),
        ({"launch": {"strategy": "zero3"}}, "`launch.strategy: zero3` needs the package `deepspeed`", "fsdp2"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    sections: dict[str, Any], words: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    (need,) = trainer_needs(training({}, **sections))
    with pytest.raises(SetupError, match=re.escape(words)) as caught:
        need.require()
    assert mend in caught.value.hint


def test_another_package_of_a_tracker_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: name == "tensorboardX" or None)
    (need,) = trainer_needs(training({}, run={"track": ["tensorboard"]}))
    need.require()


def test_a_package_is_looked_for_without_importing_it() -> None:
    assert PackageNeed("json", "json", "x").is_met()
    assert not PackageNeed("no_such_package", "no-such-package", "x").is_met()
    assert not PackageNeed("no_such_package.inner", "no-such-package", "x").is_met()


def test_every_call_that_may_run_a_models_code_forbids_it() -> None:
    autos = {"AutoConfig", "AutoTokenizer", "AutoModelForCausalLM", "AutoModelForSequenceClassification"}
    autos |= {"AutoImageProcessor", "AutoProcessor"}
    calls = [
        (path, node)
        for path in (ROOT / "grpo_cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "from_pretrained"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id.startswith("Auto")
    ]
    assert len(calls) >= 6
    for path, call in calls:
        assert isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        assert call.func.value.id in autos, path
        said = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert said.get("trust_remote_code") == "False", f"{path.name}:{call.lineno}"
