"""What people bring as a model, through `grpo check`, `grpo train` and their siblings: one sentence, one exit code, the mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.errors import SetupError, UserError
from grpo_cli.jobs.check.findings import CheckFinding, exit_code
from grpo_cli.jobs.check.recipe import RecipeCheck
from grpo_cli.jobs.evaluate import measure_model
from grpo_cli.jobs.open_job import open_job
from grpo_cli.jobs.probe import run_probe
from grpo_cli.jobs.train.job import Job
from grpo_cli.measure.probe import ProbeSize
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.model_source import ModelSource
from tests.builders.chat_models import make_model, make_tokenizer
from tests.builders.workplaces import Told

ROOT = Path(__file__).resolve().parents[2]
IGNORES = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ROWS = [{"question": f"What is {i}+3?", "answer": str(i + 3)} for i in range(4)]


def recipe_in(folder: Path, family: str = "qwen3", rows: list[dict[str, Any]] | None = None, **keys: Any) -> Recipe:
    """The base of all: four rows, a tiny model of a family; `keys` are sections laid over it."""
    if not (folder / "tiny").exists():
        make_model(folder / "tiny", family)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows or ROWS))
    (folder / "held.jsonl").write_text('{"question": "Half of twenty, please", "answer": "10"}\n')
    said: dict[str, Any] = {
        "model": {"path": str(folder / "tiny")},
        "data": {"train": "rows.jsonl", "eval": "held.jsonl", "prompt": "{question}", "answer": "{answer}"},
        "verify": {"math": {}},
        "sample": {"prompts": 2, "group": 4, "max_tokens": 16},
        "train": {"steps": 1},
        "run": {"dir": str(folder / "runs")},
    }
    for name, section in keys.items():
        whole = name == "verify" or isinstance(section, list)
        said[name] = section if whole else said.get(name, {}) | section
    return Recipe.model_validate(said)


def check(recipe: Recipe, folder: Path) -> tuple[int, dict[str, CheckFinding]]:
    findings = list(RecipeCheck(recipe, folder).findings())
    return int(exit_code(findings)), {finding.check: finding for finding in findings}


def refusals(recipe: Recipe, folder: Path) -> dict[str, UserError]:
    """What train, probe and eval say."""
    found: dict[str, UserError] = {}
    jobs = {
        "train": lambda: Job(recipe, label="r", base=folder, display=make_display("none")).run(),
        "probe": lambda: run_probe(recipe, folder, Told().display, ProbeSize(2, 2)).run,
        "eval": lambda: measure_model(ModelSource(recipe.model.path, recipe, folder, None), Told().display, seed=0),
    }
    for name, job in jobs.items():
        with pytest.raises(UserError) as caught:
            job()
        found[name] = caught.value
    return found


@pytest.mark.parametrize(
    ("family", "data", "words", "mend"),
    [
        ("base", {}, "has no chat template", "data.plain: true"),
        ("gemma", {"system": "Be brief."}, "System role not supported", "data.prompt"),
        ("mistral", {"system": "Be brief."}, "Only user and assistant roles", "data.prompt"),
    ],
)
def test_a_template_that_cannot_render_the_rows_is_one_sentence_in_every_job(
    family: str, data: dict[str, Any], words: str, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_in(tmp_path, family, data=data)
    code, found = check(recipe, tmp_path)
    assert code == 4 and words in found["prompt"].message and mend in found["prompt"].hint
    monkeypatch.setattr(
        "grpo_cli.policy.model._load_weights", lambda *_: pytest.fail("weights were loaded for nothing")
    )
    for said in refusals(recipe, tmp_path).values():
        assert isinstance(said, SetupError) and words in str(said) and mend in said.hint
    assert not (tmp_path / "runs").exists()


def test_both_mends_of_a_base_model_work(tmp_path: Path) -> None:
    code, found = check(recipe_in(tmp_path, "base", data={"plain": True}), tmp_path)
    assert (code, found["prompt"].level.value, found["tokens"].level.value) == (0, "ok", "ok")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    recipe = recipe_in(tmp_path, model={"path": str(tmp_path / "tiny"), "chat_template": template})
    assert check(recipe, tmp_path)[0] == 0
    made = Job(recipe, label="r", base=tmp_path, display=make_display("none")).run()
    assert made.code == 0


def test_rows_that_are_templated_already_are_found(tmp_path: Path) -> None:
    rows = [{"question": f"<|im_start|>user\n{i}+3?<|im_end|>", "answer": str(i + 3)} for i in range(4)]
    code, found = check(recipe_in(tmp_path, rows=rows), tmp_path)
    assert code == 1 and "twice" in found["prompt"].message
    first = [{"question": f"<bos>{i}+3?", "answer": str(i + 3)} for i in range(4)]
    (tmp_path / "g").mkdir()
    plain = recipe_in(tmp_path / "g", "gemma", rows=first, data={"plain": True})
    code, found = check(plain, tmp_path / "g")
    assert code == 1 and "`<bos>` stands twice" in found["prompt"].message


def test_tags_that_are_special_tokens_reach_the_verifier(tmp_path: Path) -> None:
    verify = {"math": {}, "format": {"tags": ["think"], "weight": 0.2}}
    code, found = check(recipe_in(tmp_path, "tags", verify=verify), tmp_path)
    assert code == 0, found["prompt"]
    verify = {"math": {}, "format": {"tags": ["im_start"], "opened": "no", "weight": 0.2}}
    pattern = {"math": {}, "regex": {"pattern": r"<\|im_start\|>", "weight": 0.2}}
    code, found = check(recipe_in(tmp_path, verify=pattern), tmp_path)
    assert code == 1 and "`verify.regex` looks for `<|im_start|>`" in found["prompt"].message


@pytest.mark.parametrize("said", [r"Give \boxed{5}", r"Is \frac12 less?", r"So \text{a}", r"a \times b"])
def test_a_command_of_tex_that_json_took_for_an_escape_is_warned_of(said: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"question": json.loads(f'"{said}"'), "answer": "5"}]
    code, found = check(recipe_in(tmp_path, rows=rows), tmp_path)
    assert code == 1 and "a command of TeX whose backslash JSON took for an escape" in found["prompt"].message
    assert "rows.jsonl:5: `question` holds U+00" in found["prompt"].message


def test_tabs_and_page_breaks_are_no_commands_of_tex(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"question": "a\tb\fPage 2\r\nend\ttext", "answer": "5"}]
    assert check(recipe_in(tmp_path, rows=rows), tmp_path)[0] == 0


def test_a_template_argument_that_nothing_reads_is_found(tmp_path: Path) -> None:
    model = {"path": str(tmp_path / "tiny"), "template_args": {"enable_thinkin": False}}
    make_model(tmp_path / "tiny")
    code, found = check(recipe_in(tmp_path, model=model), tmp_path)
    assert code == 1 and "`model.template_args.enable_thinkin` has no effect" in found["prompt"].message


@pytest.mark.parametrize(
    ("family", "template", "words"),
    [("gemma", None, "ends a turn with `<end_of_turn>`"), ("qwen3", IGNORES, "does not open the assistant's turn")],
)
def test_a_template_at_odds_with_the_recipe_is_warned_of_by_check_and_train(
    family: str, template: str | None, words: str, tmp_path: Path
) -> None:
    model = {"path": str(tmp_path / "tiny"), "chat_template": template}
    recipe = recipe_in(tmp_path, family, model=model)
    code, found = check(recipe, tmp_path)
    assert code == 1 and words in found["prompt"].message
    told = Told()
    with open_job(recipe, tmp_path, told.display):
        assert found["prompt"].message in told.notes
    full = {one.check: one for one in RecipeCheck(recipe, tmp_path, is_full=True).findings()}
    assert full["prompt"].message == found["prompt"].message
    ended = recipe_in(tmp_path, family, model=model, sample={"stop": ["<end_of_turn>"]})
    assert (check(ended, tmp_path)[0] == 0) == (family == "gemma")


def test_the_models_own_configuration_says_what_ends_a_completion(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "gemma")
    ends = make_tokenizer("gemma").convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    file = tmp_path / "tiny" / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": ends}))
    assert check(recipe, tmp_path)[0] == 0
    told = Told()
    with open_job(recipe, tmp_path, told.display) as place:
        assert set(ends) <= place.policy.end_ids and not any("ends a turn" in note for note in told.notes)


def test_a_tokenizer_without_pad_and_end_is_one_sentence_in_every_job(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "base", data={"plain": True})
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        file = tmp_path / "tiny" / name
        if file.exists():
            said = json.loads(file.read_text())
            file.write_text(json.dumps({k: v for k, v in said.items() if not k.endswith("_token")}))
    words = "the tokenizer has neither a pad nor an end token"
    for is_full in (False, True):
        findings = list(RecipeCheck(recipe, tmp_path, is_full=is_full).findings())
        (one,) = [found for found in findings if found.level.value == "fail"]
        assert one.message == words and "model.tokenizer" in one.hint and int(exit_code(findings)) == 4
    for error in refusals(recipe, tmp_path).values():
        assert isinstance(error, SetupError) and str(error) == words and error.hint == one.hint


@pytest.mark.parametrize(
    ("model", "train", "words"),
    [
        ("/no/such/folder", {}, "no model folder `/no/such/folder`"),
        (None, {"trl": {"optim": "adamw_bnb_8bit"}}, "needs the package `bitsandbytes`"),
    ],
)
def test_check_says_what_training_would(model: str | None, train: dict[str, Any], words: str, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, train=train, **({"model": {"path": model}} if model else {}))
    code, found = check(recipe, tmp_path)
    failed = [one for one in found.values() if one.level.value == "fail"]
    assert code == 4 and [words in one.message for one in failed] == [True]
    with pytest.raises(SetupError, match=words):
        Job(recipe, label="r", base=tmp_path, display=make_display("none")).run()


def grpo(folder: Path, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "grpo_cli", *args]
    return subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, text=True)


def test_code_that_comes_with_a_model_is_neither_asked_about_nor_run(tmp_path: Path) -> None:
    recipe_in(tmp_path)
    config = tmp_path / "tiny" / "config.json"
    more = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
    config.write_text(json.dumps(json.loads(config.read_text()) | more))
    (tmp_path / "tiny" / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\n")
    (tmp_path / "r.yaml").write_text(
        'model: ./tiny\ndata: {train: rows.jsonl, eval: held.jsonl, prompt: "{question}"}\nverify: {math: {}}\n'
        "sample: {prompts: 2, group: 4, max_tokens: 16}\ntrain: {steps: 2}\n"
    )
    for args in (["train", "r.yaml"], ["check", "r.yaml", "--full"], ["eval", "./tiny", "--recipe", "r.yaml"]):
        done = grpo(tmp_path, *args, stdin="y\n" * 50)
        assert done.returncode == 4, (args, done.stdout, done.stderr)
        assert "such code is never run" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr and "[y/N]" not in done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()


def test_show_prints_the_prompt_cut_at_its_tokens(tmp_path: Path) -> None:
    recipe_in(tmp_path, "deepseek_r1")
    (tmp_path / "r.yaml").write_text(
        'model: ./tiny\ndata: {train: rows.jsonl, prompt: "{question}", prefill: "Hm "}\nverify: {math: {}}\n'
        "sample: {prompts: 2, group: 4, max_tokens: 16}\ntrain: {steps: 2}\n"
    )
    done = grpo(tmp_path, "check", "r.yaml", "--show")
    shown = done.stdout[done.stdout.index("the prompt of rows.jsonl:1") :].splitlines()
    assert [line.split("  ")[-1].strip() for line in shown[1:7]] == [
        "<｜begin▁of▁sentence｜>",
        "<｜User｜>",
        "What is 0+3?",
        "<｜Assistant｜>",
        "<think>",
        "\\nHm",
    ]
    assert "the answer begins with" in shown[7]
    found = json.loads(grpo(tmp_path, "check", "r.yaml", "--show", "--json").stdout)["prompt"]
    assert found["begun"] == "<think>\nHm " and found["text"].endswith("<｜Assistant｜><think>\nHm ")
    assert "".join(piece["text"] for piece in found["pieces"]) == found["text"]


def test_a_dry_run_says_what_check_says(tmp_path: Path) -> None:
    recipe_in(tmp_path, "base")
    text = (
        'model: ./tiny\ndata: {train: rows.jsonl, prompt: "{question}", plain: true}\nverify: {math: {}}\n'
        "sample: {prompts: 2, group: 4, max_tokens: 16}\ntrain: {steps: 2}\n"
    )
    for name, recipe, code in (
        ("ok", text, 0),
        ("no template", text.replace(", plain: true", ""), 4),
        ("no room", text.replace("max_tokens: 16", "max_tokens: 512"), 4),
    ):
        (tmp_path / "r.yaml").write_text(recipe)
        checked, planned = grpo(tmp_path, "check", "r.yaml"), grpo(tmp_path, "train", "r.yaml", "--dry-run")
        assert (checked.returncode, planned.returncode) == (code, code), (name, checked.stdout, planned.stderr)
        as_json = grpo(tmp_path, "train", "r.yaml", "--dry-run", "--json")
        found = json.loads(as_json.stdout)
        assert found["exit"] == code and found["effective"]["model"]["path"] == "./tiny"
    assert not (tmp_path / "runs").exists()


def test_check_notes_a_template_that_writes_the_date(tmp_path: Path) -> None:
    dated = "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }}{% endfor %}"
    code, found = check(recipe_in(tmp_path, model={"chat_template": dated}), tmp_path)
    assert code == 0 and found["clock"].level == "note"
    assert "a resume on another day is refused" in found["clock"].message
    assert "a copy of the template" in found["clock"].hint
    assert "clock" not in check(recipe_in(tmp_path), tmp_path)[1]


def test_check_warns_of_lengths_that_contradict_each_other(tmp_path: Path) -> None:
    code, found = check(recipe_in(tmp_path, train={"steps": 2, "lr_warmup_steps": 10}), tmp_path)
    assert code == 1 and found["lengths"].level == "warn"
    assert "the rate rises to 10% of `train.lr`" in found["lengths"].message
    said = recipe_in(tmp_path, data={"max_prompt_tokens": 4000}, eval={"every": 9})
    found = check(said, tmp_path)[1]
    assert "`eval.every: 9`" in found["lengths"].message
    assert any("a context of 256 leaves" in line for line in found["lengths"].lines)
    assert "lengths" not in check(recipe_in(tmp_path), tmp_path)[1]


def test_check_says_that_held_out_answers_leave_no_room_as_train_does(tmp_path: Path) -> None:
    code, found = check(recipe_in(tmp_path, eval={"max_tokens": 300}), tmp_path)
    assert code == 4 and found["tokens"].level == "fail"
    assert "`eval.max_tokens` is 300, the model's context only 256 tokens" in found["tokens"].message


TRL_REWARDS = """
import re

def form(completions, **kwargs):
    return [0.5 if re.search("<answer>", one) else 0.0 for one in completions]

def correct(completions, answer, **kwargs):
    return [2.0 if gold in one else 0.0 for one, gold in zip(completions, answer)]
"""


@pytest.mark.parametrize(
    ("form", "correct", "is_warned"),
    [
        ({}, {}, True),
        ({"right_at": 0.5}, {}, False),
        ({}, {"primary": True}, False),
        ({"range": [0, 0.75]}, {}, True),
        ({"range": [0, 1]}, {}, False),
    ],
)
def test_a_primary_verifier_that_can_call_nothing_right_is_warned_of(
    form: dict[str, Any], correct: dict[str, Any], is_warned: bool, tmp_path: Path
) -> None:
    (tmp_path / "rewards.py").write_text(TRL_REWARDS)
    verify = {
        "form": {"kind": "python", "function": "rewards.py:form", "workers": 1, **form},
        "correct": {"kind": "python", "function": "rewards.py:correct", "workers": 1, **correct},
    }
    recipe = recipe_in(tmp_path, verify=verify)
    said = [one for one in RecipeCheck(recipe, tmp_path).findings() if "can be right" in one.message]
    assert [one.check for one in said] == ["verify.form"] * is_warned
    for one in said:
        assert one.level.value == "warn" and f"gives {form.get('range', [0, 0.5])[1]:g} at most" in one.message
        assert "verify.form.right_at" in one.hint and "`verify.correct.primary: true`" in one.hint
