"""Which files are behind a recipe, and what of them a resume notices."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.rows import Split
from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.code_files import files_of_code
from grpo_cli.resilience.contents import files_behind, refuse_changed, rows_read
from grpo_cli.run.folder import RunFolder
from tests.builders.data_builders import row
from tests.builders.plugin_site import write_plugin_site


def recipe(**sections: Any) -> Recipe:
    said: dict[str, Any] = {
        "model": "builtin:tiny",
        "data": {"train": "rows.jsonl", "prompt": "{question}"},
        "verify": {"math": {}},
        "train": {"steps": 2},
    }
    return Recipe.model_validate(said | sections)


def write(folder: Path, name: str, text: str = "x") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


ROWS = '{"question": "1+1", "answer": "2"}\n'
PYTHON = {"kind": "python", "function": "reward.py:f"}
KEYS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a function": ({"verify": {"mine": PYTHON}}, "verify.mine.function", "reward.py"),
    "a module": (
        {"verify": {"mine": {"kind": "python", "function": "pack.reward:f"}}},
        "verify.mine.function",
        "pack/reward.py",
    ),
    "an environment": ({"environment": "world.py:World"}, "environment.python", "world.py"),
    "tools": (
        {"environment": {"tools": ["python", "tools.py:add"]}, "verify": {"math": {}}},
        "environment.tools.1",
        "tools.py",
    ),
    "TRL's": ({"environment": {"trl": "world.py:World"}}, "environment.trl", "world.py"),
    "a file of an environment": (
        {"environment": {"python": "environments:guess", "options": {"games": ["game.z8"]}}},
        "environment.options.games.0",
        "game.z8",
    ),
    "pairs": (
        {"train": {"steps": 2, "method": "prefer"}, "prefer": {"data": "pairs.jsonl"}},
        "prefer.data.from",
        "pairs.jsonl",
    ),
    "demonstrations": (
        {"warmup": {"data": "shown.jsonl", "demonstration": "{a}", "steps": 1, "lr": 1e-3}},
        "warmup.0.data.from",
        "shown.jsonl",
    ),
    "demonstrations of sft": (
        {
            "train": {"method": "sft"},
            "sft": [{"demonstration": "{a}", "steps": 1, "lr": 1e-3, "data": "part-*.jsonl"}],
        },
        "sft.0.data.from",
        "part-1.jsonl",
    ),
    "canaries": ({"monitor": {"canary": {"from": "asked.jsonl"}}}, "monitor.canary.from.from", "asked.jsonl"),
    "a model": ({"model": {"path": "MODEL"}}, "model.path", "model.safetensors"),
    "a tokenizer": ({"model": {"path": "gone/away", "tokenizer": "MODEL"}}, "model.tokenizer", "tokenizer.json"),
    "a critic": (
        {"train": {"steps": 2, "algorithm": "ppo", "critic": {"from": "MODEL"}}},
        "train.critic.from",
        "config.json",
    ),
    "a field of TRL's": (
        {"train": {"steps": 2, "trl": {"deepspeed": "zero.json"}}},
        "train.trl.deepspeed",
        "zero.json",
    ),
    "a template's argument": (
        {"model": {"path": "builtin:tiny", "template_args": {"rules": "rules.txt"}}},
        "model.template_args.rules",
        "rules.txt",
    ),
    "a verifier's text": (
        {"verify": {"judge": {"base_url": "http://localhost:1/v1", "model": "m", "rubric": "rubric.md"}}},
        "verify.judge.rubric",
        "rubric.md",
    ),
    "patterns of a verifier": (
        {"verify": {"regex": {"pattern": ["a", "patterns.txt"]}}},
        "verify.regex.pattern.1",
        "patterns.txt",
    ),
    "a harness": (
        {"environment": {"harness": "python agent.py --fast"}, "verify": {"numeric": {}}},
        "environment.harness.command",
        "agent.py",
    ),
    "a file of a harness": (
        {"environment": {"harness": {"command": "node agent.js"}}, "verify": {"numeric": {}}},
        "environment.harness.command",
        "agent.js",
    ),
    "a server": (
        {"environment": {"mcp": {"a": {"command": ["python", "agent.py"]}}}, "verify": {"numeric": {}}},
        "environment.mcp.a.command",
        "agent.py",
    ),
    "a reward model": ({"verify": {"reward_model": {"model": "MODEL"}}}, "verify.reward_model.model", "config.json"),
}  # fmt: skip


@pytest.mark.parametrize("what", KEYS)
def test_the_files_behind_a_key_are_known_and_a_change_is_another_digest(tmp_path: Path, what: str) -> None:
    sections, key, name = KEYS[what]
    folder = tmp_path / "model"
    given = json.loads(json.dumps(sections).replace('"MODEL"', json.dumps(str(folder))))
    file = write(folder if "MODEL" in json.dumps(sections) else tmp_path, name, "before = 1\n")
    before = files_behind(recipe(**given), tmp_path)
    assert name in before[key], before
    file.write_text("after = 1\n")
    after = files_behind(recipe(**given), tmp_path)
    assert after[key].keys() == before[key].keys()
    assert after[key][name] != before[key][name]
    assert {k: v for k, v in after.items() if k != key} == {k: v for k, v in before.items() if k != key}


def test_words_that_are_no_files_are_not_taken_for_some(tmp_path: Path) -> None:
    for name in ("builtin:tiny", "question", "math", "default", "linear", "runs"):
        write(tmp_path, name)
    assert files_behind(recipe(run={"name": "runs"}, data={"train": "question", "prompt": "question"}), tmp_path) == {}  # fmt: skip


def test_code_is_followed_into_the_modules_beside_it_and_the_files_it_reads(tmp_path: Path) -> None:
    write(tmp_path, "reward.py", "import json\nfrom pack.inner import deep\nimport other as o\nT = 'table.csv'\n")
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/inner/__init__.py", "from . import near\nfrom ..side import x\n")
    for name in ("pack/inner/deep.py", "pack/inner/near.py", "pack/side.py", "unused.py", "table.csv"):
        write(tmp_path, name, "")
    write(tmp_path, "other.py", "import reward\n")
    found, version = files_of_code("reward.py:f", [tmp_path])
    assert version == ""
    assert {str(path.relative_to(tmp_path)) for path in found} == {
        *("reward.py", "other.py", "table.csv", "pack/__init__.py", "pack/side.py"),
        *("pack/inner/__init__.py", "pack/inner/deep.py", "pack/inner/near.py"),
    }


WRITERS = {
    "open": "open('log.txt', 'a').write('x')",
    "a mode by name": "open('log.txt', mode='w')",
    "a path": "Path('log.txt').open('a')",
    "write_text": "Path('log.txt').write_text('x')",
    "logging": "logging.FileHandler('log.txt')",
    "a data base": "db = sqlite3.connect('log.txt'); db.commit()",
}


@pytest.mark.parametrize("how", WRITERS)
def test_what_code_writes_itself_is_no_content_of_it(tmp_path: Path, how: str) -> None:
    write(tmp_path, "reward.py", WRITERS[how])
    write(tmp_path, "log.txt")
    assert files_of_code("reward.py:f", [tmp_path])[0] == [tmp_path / "reward.py"]
    write(tmp_path, "reward.py", "open('log.txt', 'r', encoding='utf-8'); open('log.txt')")
    assert files_of_code("reward.py:f", [tmp_path])[0] == [tmp_path / "log.txt", tmp_path / "reward.py"]


def test_code_that_cannot_be_parsed_is_one_file(tmp_path: Path) -> None:
    write(tmp_path, "reward.py", "def f(:\n")
    assert files_of_code("reward.py:f", [tmp_path]) == ([tmp_path / "reward.py"], "")
    assert files_of_code("gone.py:f", [tmp_path]) == ([], "")
    assert files_of_code("no_such_module_at_all:f", [tmp_path]) == ([], "")


def test_a_kind_that_a_package_brings_is_known_by_the_packages_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grpo_verifiers.registry as registry

    write_plugin_site(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setitem(registry.KINDS.places, "polite", "plugin_kinds:Polite")
    write(tmp_path, "plugin_kinds-1.0.dist-info/top_level.txt", "plugin_kinds\n")
    behind = files_behind(recipe(verify={"polite": {"word": "please"}}), tmp_path)
    assert behind == {"verify.polite.kind": {"plugin_kinds": "1.0"}}


def made(folder: Path, of: Recipe, **contents: Any) -> RunFolder:
    return RunFolder.create(folder / "runs", "run", to_yaml(of), contents, label="r")


def test_every_change_is_named_with_its_key_its_file_and_both_digests(tmp_path: Path) -> None:
    write(tmp_path, "reward.py", "import helper\n")
    write(tmp_path, "helper.py", "A = 1\n")
    of = recipe(verify={"mine": PYTHON}, environment={"python": "world.py:W"})
    write(tmp_path, "world.py")
    run = made(tmp_path, of, contents={"files": files_behind(of, tmp_path)})
    refuse_changed(run, "files", files_behind(of, tmp_path))
    write(tmp_path, "helper.py", "A = 2\n")
    write(tmp_path, "world.py", "y")
    with pytest.raises(RecipeError) as refused:
        refuse_changed(run, "files", files_behind(of, tmp_path))
    said = refused.value.render()
    assert "`verify.mine.function`: `helper.py` was changed since the run began: " in said
    assert "`environment.python`: `world.py` was changed since the run began: " in said
    assert f"--resume {run.path} --resume-anyway" in said and "reward.py" not in said
    (tmp_path / "helper.py").unlink()
    with pytest.raises(RecipeError, match=r"`helper.py` is gone"):
        refuse_changed(run, "files", files_behind(of, tmp_path))


def test_a_run_that_noted_nothing_is_not_refused(tmp_path: Path) -> None:
    write(tmp_path, "reward.py")
    of = recipe(verify={"mine": PYTHON})
    refuse_changed(made(tmp_path, of), "files", files_behind(of, tmp_path))


def test_stages_have_files_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, "rows.jsonl", ROWS)
    write(tmp_path, "more.jsonl", ROWS)
    stages = [{"name": "a"}, {"name": "b", "data": {"train": ["more.jsonl", "run:a"]}}]
    found = files_behind(recipe(stages=stages), tmp_path)
    assert {key: list(files) for key, files in found.items()} == {
        "data.train.0.from": ["rows.jsonl"],
        "stages.b.data.train.0.from": ["more.jsonl"],
    }


EDITS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a prompt": lambda rows: [*rows[:-1], replace(row("3"), prompt="other")],
    "a column that only a verifier sees": lambda rows: [*rows[:-1], row("3", answer="9")],
    "the order": lambda rows: rows[::-1],
    "a row less": lambda rows: rows[:-1],
    "a prefill": lambda rows: [*rows[:-1], replace(row("3"), prefill="<think>")],
}


@pytest.mark.parametrize("edit", EDITS)
def test_rows_are_the_same_where_all_of_each_is(edit: str) -> None:
    rows = [row(str(n)) for n in range(4)]
    one, same, other = (
        rows_read({"train": Split(some, {})}, recipe()) for some in (rows, list(rows), EDITS[edit](rows))
    )
    assert one == same != other
    assert one["data.train"].keys() == {"a.jsonl"}


def test_of_several_sources_the_one_that_changed_is_named() -> None:
    of = recipe(data={"train": ["rows.jsonl", "tasks:addition3", "run:rl", "part-*.jsonl"], "prompt": "{question}"})
    places = ["rows.jsonl:1", "tasks:addition3:train 1", "run:rl row a", "part-1.jsonl:1", "part-2.jsonl:1"]
    rows = [replace(row(str(n)), place=place) for n, place in enumerate(places)]
    before = rows_read({"train": Split(rows, {})}, of)["data.train"]
    assert set(before) == {"rows.jsonl", "tasks:addition3", "run:rl", "part-1.jsonl", "part-2.jsonl"}
    after = rows_read({"train": Split([*rows[:-1], replace(rows[-1], prompt="other")], {})}, of)["data.train"]
    assert {name for name in before if before[name] != after[name]} == {"part-2.jsonl"}


def test_a_recipe_folder_may_move(tmp_path: Path) -> None:
    of = recipe(verify={"mine": PYTHON})
    found = []
    for name in ("here", "there"):
        write(tmp_path / name, "reward.py", "import helper\n")
        write(tmp_path / name, "helper.py")
        found.append(files_behind(of, tmp_path / name))
    assert found[0] == found[1]
