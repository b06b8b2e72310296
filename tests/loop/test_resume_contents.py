"""A resume goes on with the rows, functions and prompts that the run began with, or says which of them is another one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.errors import Exit, RecipeError
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.run.folder import RunFolder
from tests.builders.chat_models import make_model
from tests.builders.workplaces import Told
from tests.loop.program import grpo

RECIPE = """\
model: builtin:tiny
data: {train: {from: rows.jsonl, limit: 4}, eval: held.jsonl, prompt: "{question}"}
verify: {mine: {kind: python, function: "reward.py:f"}}
sample: {prompts: 2, group: 4, max_tokens: 8}
eval: {samples: 2, k: [1, 2]}
train: {steps: 3, lr: 1e-3}
run: {name: run, report: false, deadline: 0s}
"""
REWARD = """\
import json, os
from helpers.letters import LETTER
WORDS = json.load(open(os.path.join(os.path.dirname(__file__), "words.json")))

def f(completion, answer):
    return completion.count(LETTER) / 10
"""


def rows(*numbers: int) -> str:
    return "".join(json.dumps({"question": f"What is {n}+1?", "answer": str(n + 1)}) + "\n" for n in numbers)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and a run of it that a deadline stopped after its first step."""
    folder = tmp_path_factory.mktemp("begun")
    files = {"r.yaml": RECIPE, "reward.py": REWARD, "helpers/letters.py": "LETTER = 'e'\n", "words.json": "[]"}
    files |= {"rows.jsonl": rows(1, 2, 3, 4, 5), "held.jsonl": rows(8, 9)}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    ended = grpo(folder, "train", "r.yaml", "--display", "plain", cwd=folder)
    assert ended.returncode == Exit.TERMINATED, ended.stderr
    return folder


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> Path:
    """A copy of it, with another place and the same contents."""
    return Path(shutil.copytree(begun, tmp_path / "moved"))


def go_on(folder: Path, *more: str) -> Any:
    # the run's own recipe keeps the folder that its function was found in
    text = (folder / "runs/run/recipe.yaml").read_text()
    (folder / "runs/run/recipe.yaml").write_text(text.replace(str(folder.parent.parent), str(folder)))
    manifest = json.loads((folder / "runs/run/run.json").read_text()) | {"base": str(folder)}
    (folder / "runs/run/run.json").write_text(json.dumps(manifest))
    return grpo(folder, "train", "--resume", "runs/run", "--display", "plain", *more, cwd=folder)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a function": (edit("reward.py", "/ 10", "/ 9"), "`verify.mine.function`: `reward.py` was changed"),
    "a module beside it": (
        edit("helpers/letters.py", "e", "x"),
        "`verify.mine.function`: `helpers/letters.py` was changed",
    ),
    "a table that it reads": (edit("words.json", "[]", "[1]"), "`verify.mine.function`: `words.json` was changed"),
    "a training row": (edit("rows.jsonl", "3+1", "7+1"), "`data.train`: `rows.jsonl` was changed"),
    "a gold": (edit("rows.jsonl", '"answer": "3"', '"answer": "7"'), "`data.train`: `rows.jsonl` was changed"),
    "a held-out row": (edit("held.jsonl", "9+1", "7+1"), "`data.eval`: `held.jsonl` was changed"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_resume_names_what_has_changed_and_goes_on_with_it_if_told_to(folder: Path, what: str) -> None:
    change, said = CHANGES[what]
    change(folder)
    before = (folder / "runs/run/metrics.jsonl").read_bytes()
    refused = go_on(folder)
    assert refused.returncode == Exit.USAGE, refused.stderr
    assert f"error: {said} since the run began: " in refused.stderr
    assert "--resume runs/run --resume-anyway" in refused.stderr and "Traceback" not in refused.stderr
    assert (folder / "runs/run/metrics.jsonl").read_bytes() == before
    went = go_on(folder, "--resume-anyway")
    assert went.returncode == Exit.TERMINATED, went.stderr
    assert said in went.stderr and "resuming run from step-000001" in went.stderr
    (changed,) = json.loads((folder / "runs/run/run.json").read_text())["changed"]
    assert changed.startswith(said)
    again = go_on(folder)  # from now on this is what the run is made of
    assert again.returncode == Exit.TERMINATED and "resuming run from step-000002" in again.stderr


def test_what_the_run_never_read_may_change(folder: Path) -> None:
    edit("rows.jsonl", "5+1", "7+1")(folder)  # beyond the limit
    (folder / "reward.py").touch()
    (folder / "another.py").write_text("x = 1\n")
    went = go_on(folder)
    assert went.returncode == Exit.TERMINATED and "resuming run from step-000001" in went.stderr


def test_a_run_of_an_older_version_goes_on_and_that_nothing_was_compared_is_said(folder: Path) -> None:
    run = RunFolder.open(folder / "runs/run")
    manifest = {key: value for key, value in run.manifest().items() if key != "contents"}
    (run.path / "run.json").write_text(json.dumps(manifest | {"versions": {"grpo": "0.2.0"}}))
    edit("rows.jsonl", "3+1", "7+1")(folder)
    went = go_on(folder)
    assert went.returncode == Exit.TERMINATED, went.stderr
    assert "run was begun by grpo 0.2.0, which noted no contents" in went.stderr
    edit("rows.jsonl", "7+1", "6+1")(folder)
    assert go_on(folder).returncode == Exit.USAGE


STAGES = """\
stages:
  - name: first
  - name: second
    data: {train: more.jsonl}
"""


def test_a_chain_compares_what_its_later_stages_will_read(folder: Path) -> None:
    (folder / "more.jsonl").write_text(rows(1, 2, 3, 4))
    (folder / "c.yaml").write_text(RECIPE.replace("name: run", "name: chain") + STAGES)
    assert grpo(folder, "train", "c.yaml", cwd=folder).returncode == Exit.TERMINATED
    edit("more.jsonl", "3+1", "7+1")(folder)
    refused = grpo(folder, "train", "c.yaml", "--resume", cwd=folder)
    assert refused.returncode == Exit.USAGE
    assert "`stages.second.data.train.0.from`: `more.jsonl` was changed since the run began" in refused.stderr
    edit("more.jsonl", "7+1", "3+1")(folder)
    edit("rows.jsonl", "3+1", "7+1")(folder)
    refused = grpo(folder, "train", "c.yaml", "--resume", cwd=folder)
    assert refused.returncode == Exit.USAGE and "`rows.jsonl` was changed" in refused.stderr


CLOCK = (
    "{%- if not date_string is defined %}{%- set date_string = strftime_now('%S.%f') %}{%- endif %}"
    "Today: {{ date_string }}\n{%- for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
)


def dated(folder: Path, **model: Any) -> Recipe:
    if not (folder / "tiny").exists():
        make_model(folder / "tiny")
    (folder / "rows.jsonl").write_text(rows(1, 2, 3, 4))
    return Recipe.model_validate(
        {
            "model": {"path": str(folder / "tiny"), "chat_template": CLOCK, **model},
            "data": {"train": "rows.jsonl", "prompt": "{question}"},
            "verify": {"math": {}},
            "sample": {"prompts": 2, "group": 2, "max_tokens": 4},
            "train": {"steps": 2},
            "run": {"dir": str(folder / "runs"), "name": "run", "report": False, "deadline": "0s"},
        }
    )


def job(recipe: Recipe, folder: Path, told: Told | None = None) -> Job:
    display = make_display("none")
    if told is not None:
        display.note = told.note  # type: ignore[method-assign]
    return Job(recipe, label="r", base=folder, display=display)


def test_a_prompt_with_the_time_in_it_is_another_one_at_a_resume(tmp_path: Path) -> None:
    recipe, told = dated(tmp_path), Told()
    run = job(recipe, tmp_path, told).run().run
    assert any("writes the date into the prompts" in note for note in told.notes)
    with pytest.raises(RecipeError, match="the first prompt` was changed since the run began") as refused:
        job(recipe, tmp_path).run(run)
    assert "`model.template_args: {date_string: " in refused.value.hint
    assert "--resume-anyway" in refused.value.hint
    assert job(recipe, tmp_path).run(run, anyway=True).steps == 2


def test_a_date_that_the_recipe_fixes_is_the_same_at_a_resume(tmp_path: Path) -> None:
    recipe, told = dated(tmp_path, template_args={"date_string": "26 Jul 2024"}), Told()
    run = job(recipe, tmp_path, told).run().run
    assert not any("writes the date" in note for note in told.notes)
    assert job(recipe, tmp_path).run(run).steps == 2


def test_another_template_in_the_models_folder_is_noticed(tmp_path: Path) -> None:
    recipe = dated(tmp_path, chat_template=None)
    run = job(recipe, tmp_path).run().run
    (tmp_path / "tiny/chat_template.jinja").write_text(CLOCK.replace("strftime_now('%S.%f')", "'today'"))
    with pytest.raises(RecipeError, match=r"`chat_template.jinja` was changed since the run began"):
        job(recipe, tmp_path).run(run)
