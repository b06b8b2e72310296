"""Code that came with a model runs in no command without `--trust`; one's own runs as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grpo_cli.app import app
from grpo_cli.errors import RecipeError
from grpo_cli.recipe.named import TRUSTS
from grpo_cli.recipe.reading.load import load

REWARD = "def f(completion, answer):\n    return 1.0\n\n\nclass World:\n    pass\n"
RAN = "from pathlib import Path\n(Path(__file__).parent / 'RAN').write_text('')\n"


def recipe(**more: Any) -> dict[str, Any]:
    """A recipe whose reward is `reward.py:f`, with other sections in place of its own."""
    return {
        "grpo": 1,
        "model": {"path": "builtin:tiny"},
        "data": {
            "train": "rows.jsonl",
            "eval": "rows.jsonl",
            "prompt": "{question}",
            "answer": "{answer}",
            "plain": True,
        },
        "verify": {"python": {"function": "reward.py:f"}},
        "sample": {"prompts": 2, "group": 4, "max_tokens": 8},
        "train": {"steps": 1},
    } | more


def write(folder: Path, said: dict[str, Any], *, weights: str | None = "model.safetensors") -> Path:
    """A folder with recipe, rows and code; `weights` names what makes it one that came with a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(json.dumps(said))
    (folder / "rows.jsonl").write_text('{"question": "2+3", "answer": "5"}\n' * 4)
    (folder / "reward.py").write_text(RAN + REWARD)
    (folder / "config.json").write_text("{}")
    if weights is not None:
        (folder / weights).write_text("{}")
    return folder / "recipe.yaml"


CHAT = {"train": "rows.jsonl", "prompt": "{question}", "answer": "{answer}"}
COMMANDS = {
    "eval": ["eval", "{folder}"],
    "chat": ["chat", "{folder}", "--row", "0"],
    "check": ["check", "{file}"],
    "probe": ["probe", "{file}"],
    "audit": ["audit", "verifier", "--recipe", "{file}"],
    "audit data": ["audit", "data", "{file}"],
    "verify": ["verify", "{folder}/rows.jsonl", "--recipe", "{file}"],
    "train": ["train", "{file}"],
    "train --dry-run": ["train", "{file}", "--dry-run"],
    "pairs": ["pairs", "{file}"],
    "sweep": ["sweep", "{file}"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_runs_code_that_came_with_a_model(words: list[str], tmp_path: Path) -> None:
    file = write(tmp_path / "theirs", recipe())
    typed = [word.format(folder=file.parent, file=file) for word in words]
    told = CliRunner().invoke(app, typed)
    assert isinstance(told.exception, RecipeError), told.output
    assert "came with a model" in str(told.exception)
    assert not (file.parent / "RAN").exists()


@pytest.mark.parametrize(
    "weights",
    [
        "model.safetensors", "w.gguf", "pytorch_model.bin", "adapter_model.bin", "manifest.json", "run.json",
        "Q4_K.GGUF", "pytorch_model-00001-of-00002.bin", "tf_model.h5", "flax_model.msgpack", "model.safetensors.index.json",
        "tokenizer_config.json", "adapter_config.json",
    ],
)  # fmt: skip
def test_what_makes_a_folder_one_that_came_with_a_model(weights: str, tmp_path: Path) -> None:
    file = write(tmp_path / "theirs", recipe(), weights=weights)
    with pytest.raises(RecipeError, match=r"`verify.python.function` names `reward.py:f`, code inside"):
        load(file)


@pytest.mark.parametrize(
    "more",
    [
        {"verify": {"python": {"function": "reward:f"}}},
        {"verify": {"python": {"function": "os:system"}}},
        {"verify": {"math": {}, "x": {"kind": "python", "function": "sub/reward.py:f", "weight": 0.5}}},
        {"verify": {"python": {"function": "reward2:f", "path": ["sub"]}}},
        {"environment": {"python": "reward.py:World"}, "verify": {"environment": {}}, "data": CHAT},
        {"environment": {"tools": ["reward.py:f"]}, "verify": {"math": {}}, "data": CHAT},
        {"verify": {"judge": {"base_url": "http://example.org/v1", "model": "m"}}},
        {"stages": [{"name": "a", "verify": {"python": {"function": "reward.py:f"}}}, {"name": "b"}], "verify": {"math": {}}},
    ],
    ids=["module", "standard-library", "folder-below", "path", "world", "tools", "judge", "stage"],
)  # fmt: skip
def test_every_way_to_name_code_is_refused(more: dict[str, Any], tmp_path: Path) -> None:
    file = write(tmp_path / "theirs", recipe(**more))
    write(file.parent / "sub", recipe(), weights=None)
    (file.parent / "sub" / "reward2.py").write_text(RAN + REWARD)
    with pytest.raises(RecipeError, match="came with a model"):
        load(file)
    assert not list(tmp_path.rglob("RAN"))


def test_code_of_another_folder_that_came_with_a_model_is_refused_too(tmp_path: Path) -> None:
    theirs = write(tmp_path / "theirs", recipe())
    own = write(tmp_path / "own", recipe(verify={"python": {"function": "../theirs/reward.py:f"}}), weights=None)
    with pytest.raises(RecipeError, match="came with a model"):
        load(own)
    (tmp_path / "own" / "link.py").symlink_to(theirs.parent / "reward.py")
    own.write_text(json.dumps(recipe(verify={"python": {"function": "link.py:f"}})))
    with pytest.raises(RecipeError, match="came with a model"):
        load(own)


def test_ones_own_reward_needs_no_word(tmp_path: Path) -> None:
    own = write(tmp_path / "own", recipe(), weights=None)
    (tmp_path / "model.safetensors").write_text("{}")  # beside it, in a folder of its own
    (tmp_path / "theirs").mkdir()
    (tmp_path / "model.safetensors").rename(tmp_path / "theirs" / "model.safetensors")
    assert load(own).verify["python"].options["function"] == "reward.py:f"


def test_a_run_of_ones_own_goes_on_with_its_reward(tmp_path: Path) -> None:
    own = write(tmp_path / "own", recipe(), weights=None)
    # as a run's own recipe holds where its function was found
    held = recipe(verify={"python": {"function": "reward.py:f", "path": [str(own.parent)]}})
    run = write(tmp_path / "own" / "runs" / "first", held, weights="run.json")
    (run.parent / "reward.py").unlink()
    assert load(run, base=own.parent).verify["python"].options["function"] == "reward.py:f"


def test_a_recipe_of_theirs_imports_nothing_from_its_folder(tmp_path: Path) -> None:
    own = write(tmp_path / "own", recipe(), weights=None)
    file = write(tmp_path / "theirs", recipe(verify={"python": {"function": f"{own.parent}/reward.py:f"}}))
    (file.parent / "reward.py").unlink()
    assert load(file)  # there is nothing to import
    (file.parent / "numpy").mkdir()
    (file.parent / "numpy" / "__init__.py").write_text(RAN)
    with pytest.raises(RecipeError, match="would import from"):
        load(file)


@pytest.mark.parametrize(
    "more",
    [
        {"run": {"webhook": "https://example.org/hook"}},
        {"sample": {"engine": "vllm", "vllm": {"mode": "server", "server_base_url": "http://example.org:8000"}}},
        {"sample": {"engine": "vllm", "vllm": {"mode": "server", "server_host": "example.org"}}},
    ],
    ids=["webhook", "server", "host"],
)
def test_a_recipe_that_came_with_a_model_sends_nothing_elsewhere(more: dict[str, Any], tmp_path: Path) -> None:
    said = recipe(verify={"math": {}}) | more
    with pytest.raises(RecipeError, match=r"came with a model .* would send"):
        load(write(tmp_path / "theirs", said))
    assert load(write(tmp_path / "own", said, weights=None))


CHATTED = {"train": "rows.jsonl", "eval": "rows.jsonl", "prompt": "{question}", "answer": "{answer}"}
OWN = {
    "judge": {"verify": {"judge": {"base_url": "https://example.org/v1", "model": "m"}}},
    "harness": {"environment": {"harness": {"command": "agent --fast"}}, "verify": {"numeric": {}}, "data": CHATTED},
    "library": {"verify": {"python": {"function": "os.path:basename"}}},
    "webhook": {"verify": {"math": {}}, "run": {"webhook": "https://example.org/hook"}},
}


@pytest.mark.parametrize("more", OWN.values(), ids=OWN)
def test_a_run_may_use_what_ones_own_recipe_names(more: dict[str, Any], tmp_path: Path) -> None:
    own = write(tmp_path / "own", recipe(**more), weights=None)
    (own.parent / "reward.py").unlink()
    run = write(own.parent / "runs" / "first", recipe(**more), weights="run.json")
    (run.parent / "reward.py").unlink()
    assert load(run, base=own.parent)
    own.write_text(json.dumps(recipe(verify={"math": {}})))
    with pytest.raises(
        RecipeError, match="came with a model"
    ):  # it names a folder, whose recipe says nothing of the kind
        load(run, base=own.parent)
    own.write_text(json.dumps(recipe(**more)))
    (own.parent / "model.safetensors").write_text("")
    with pytest.raises(RecipeError, match="came with a model"):
        load(run, base=own.parent)


def test_an_option_of_the_command_line_runs_no_code_that_came_with_a_model(tmp_path: Path) -> None:
    file = write(tmp_path / "theirs", recipe())
    typed = ["verify", str(file.parent / "rows.jsonl"), "--verifier", "python", "--completion-key", "question"]
    told = CliRunner().invoke(app, [*typed, "--option", f"function={file.parent}/reward.py:f"])
    assert "came with a model" in str(told.exception)
    assert not (file.parent / "RAN").exists()


def test_trust_lets_it_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "theirs", recipe())
    told = CliRunner().invoke(app, ["check", str(file), "--trust"])
    assert "came with a model" not in told.output
    assert (file.parent / "RAN").exists()
    assert os.environ[TRUSTS] == "1"  # for the processes of ranks and runs that it starts


@pytest.mark.parametrize("command", ["python reward.py", "./agent", "agent --fast"])
def test_a_program_of_a_recipe_that_came_with_a_model_is_not_run(command: str, tmp_path: Path) -> None:
    said = recipe(environment={"harness": {"command": command, "pass": ["question"]}}, verify={"numeric": {}})
    said["data"].pop("plain")
    with pytest.raises(RecipeError, match="came with a model"):
        load(write(tmp_path / "model", said))
    assert load(write(tmp_path / "own", said, weights=None)).environment is not None


def test_a_program_inside_a_model_folder_is_not_run(tmp_path: Path) -> None:
    write(tmp_path / "model", recipe())
    said = recipe(environment={"harness": "python ../model/reward.py"}, verify={"numeric": {}})
    said["data"].pop("plain")
    with pytest.raises(RecipeError, match="came with a model"):
        load(write(tmp_path / "own", said, weights=None))


@pytest.mark.parametrize(
    ("world", "place"),
    [
        (
            {"mcp": {"a": {"command": ["python", "reward.py"]}}},
            r"`environment\.mcp\.a\.command` runs `python reward\.py`",
        ),
        (
            {"mcp": {"a": {"url": "https://far.example/mcp"}}},
            r"`environment\.mcp\.a\.url` .* would send completions to",
        ),
        ({"openenv": "http://far.example:8000"}, r"`environment\.openenv` .* would send completions to"),
        (
            {"mcp": {"a": {"url": "http://127.0.0.1:1/mcp"}}, "interpreter": "./python"},
            r"`environment\.interpreter` runs `\./python`",
        ),
    ],
)
def test_servers_and_interpreters_of_a_recipe_that_came_with_a_model_are_not_used(
    world: dict[str, Any], place: str, tmp_path: Path
) -> None:
    said = recipe(environment=world, verify={"numeric": {}})
    said["data"].pop("plain")
    with pytest.raises(RecipeError, match=place):
        load(write(tmp_path / "model", said))
    assert load(write(tmp_path / "own", said, weights=None)).environment is not None


def test_a_server_of_this_machine_is_asked(tmp_path: Path) -> None:
    said = recipe(environment={"openenv": "http://127.0.0.1:8000"}, verify={"numeric": {}})
    said["data"].pop("plain")
    assert load(write(tmp_path / "model", said)).environment is not None
