"""`grpo check` as a person runs it: what stands on stdout, and the exit code of each kind of trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """\
model: builtin:tiny
data: {train: train.jsonl, eval: eval.jsonl, prompt: "{question}"}
verify: {math: {}}
sample: {prompts: 2, group: 2, max_tokens: 16}
train: {steps: 3}
"""


def rows(first: int, count: int) -> str:
    return "".join(
        json.dumps({"question": f"{i}+{i * i}=?", "answer": str(i + i * i)}) + "\n" for i in range(first, first + count)
    )


def run(
    folder: Path, *args: str, recipe: str = RECIPE, train: str = "", held_out: str = ""
) -> subprocess.CompletedProcess[str]:
    (folder / "r.yaml").write_text(recipe)
    (folder / "train.jsonl").write_text(train or rows(10, 8))
    (folder / "eval.jsonl").write_text(held_out or rows(50, 4))
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", "check", "r.yaml", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_sound_recipe_passes_and_the_next_command_is_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok      golds train  all of 8 train rows pass their own verifier" in done.stdout
    assert "  user       10+100=?" in done.stdout
    assert done.stdout.endswith("next: grpo train r.yaml\n")


def test_json_is_one_object_with_every_check(tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    found = json.loads(done.stdout)
    assert (found["schema"], found["ok"], found["exit"]) == (1, True, 0)
    levels = {one["check"]: one["level"] for one in found["checks"]}
    assert set(levels) >= {
        "rows train",
        "rows eval",
        "verify",
        "golds train",
        "overlap",
        "tokens",
        "batches",
        "memory",
        "time",
    }
    assert set(levels.values()) == {"ok"}


def test_a_named_card_is_answered_for_with_its_cost(tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "--gpu", "2xh100", "--price", "2.5", "--json").stdout)
    (fit,) = [one for one in found["checks"] if one["check"] == "fit"]
    assert (fit["level"], fit["data"]["gpu"], fit["data"]["gpus"], fit["data"]["answer"]) == ("ok", "H100", 2, "fits")
    assert fit["data"]["cost"]["likely"] == pytest.approx(fit["data"]["hours"]["likely"] * 2 * 2.5)
    assert "fits 2 x H100" in fit["message"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpu", "h1000"], "did you mean `H100`?"),
        (["--price", "2.5"], "name it: `--gpu h100`"),
        (["--gpu", "h100", "--price", "-1"], "`-1` is no price"),
    ],
)
def test_a_card_or_price_that_is_none_is_a_usage_error(tmp_path: Path, args: list[str], said: str) -> None:
    done = run(tmp_path, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    run(tmp_path)
    code = (
        "import sys; from pathlib import Path; from grpo_cli.recipe.reading.load import load; from grpo_cli.jobs.check.recipe import RecipeCheck; "
        "list(RecipeCheck(load('r.yaml'), Path()).findings()); "
        "print(sorted({'torch', 'transformers', 'trl', 'datasets', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("train", "code", "words"),
    [
        ("oops\n", 3, "rows train   train.jsonl:1: broken JSON"),
        ("\n", 3, "`train.jsonl` is empty"),
        ('{"qestion": "q", "answer": "1"}\n', 3, "no column `question`; did you mean `qestion`?"),
        ('{"question": "q", "answer": "1"}\n', 3, "do not fill one step of 2 prompts"),
        (rows(10, 8) + '{"question": "q", "answer": ""}\n', 3, "1 of 9 train rows have a bad gold"),
        (rows(10, 8) + rows(51, 1), 1, "1 exact of 4 held-out rows stand among 9 training rows"),
        (rows(10, 8) + rows(10, 1), 0, "1 exact of 9 training rows"),
    ],
)
def test_each_trouble_has_its_words_and_its_code(tmp_path: Path, train: str, code: int, words: str) -> None:
    done = run(tmp_path, train=train)
    assert words in done.stdout
    assert done.returncode == code


SHAPED = RECIPE.replace("verify: {math: {}}", "verify: {math: {}, form: {kind: regex, pattern: x, weight: 0.1}}")


def test_shaping_that_wrong_answers_train_on_alone_is_a_warning(tmp_path: Path) -> None:
    done = run(tmp_path, recipe=SHAPED.replace("steps: 3", "steps: 3, alive_by: reward"))
    assert "an all-wrong group trains on `form` alone, at full size whatever its weight" in done.stdout
    assert done.returncode == 1
    done = run(tmp_path, recipe=SHAPED)
    assert (done.returncode, "trains on" in done.stdout) == (0, False)


def test_a_name_in_alive_by_that_is_no_verifier_is_a_mistake(tmp_path: Path) -> None:
    done = run(tmp_path, recipe=SHAPED.replace("steps: 3", "steps: 3, alive_by: [math, forms]"))
    assert "`train.alive_by` names no verifier `forms`" in done.stderr
    assert "did you mean `form`?" in done.stderr
    assert done.returncode == 2


def test_trouble_in_one_split_does_not_hide_the_other(tmp_path: Path) -> None:
    done = run(tmp_path, train="oops\n", held_out='{"question": "q", "answer": ""}\n')
    assert "train.jsonl:1" in done.stdout
    assert "eval.jsonl:1" in done.stdout


def test_a_recipe_error_is_exit_2_on_stderr(tmp_path: Path) -> None:
    done = run(tmp_path, recipe=RECIPE.replace("steps", "stepps"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean `steps`" in done.stderr


def test_hostile_rows_cannot_steer_the_terminal(tmp_path: Path) -> None:
    done = run(tmp_path, train=json.dumps({"question": "\x1b[2J\u202e[/red]", "answer": "1"}) + "\n" + rows(10, 8))
    assert "\x1b" not in done.stdout
    assert "\\x1b[2J\\u202e[/red]" in done.stdout


def test_a_demonstration_that_cannot_be_filled_fails(tmp_path: Path) -> None:
    done = run(tmp_path, recipe=RECIPE + "warmup: {demonstration: '{worked}', steps: 1, lr: 1e-3}\n")
    assert done.returncode == 3
    assert "no column `worked`" in done.stdout


def test_a_warm_ups_own_rows_are_read_too(tmp_path: Path) -> None:
    phase = "warmup: {data: shown.jsonl, demonstration: '{worked}', steps: 1, lr: 1e-3}\n"
    done = run(tmp_path, recipe=RECIPE + phase)
    assert done.returncode == 3
    assert "fail    warmup[0]    data.train: no file `shown.jsonl`" in done.stdout
    (tmp_path / "shown.jsonl").write_text('{"question": "q", "worked": "w"}\n')
    assert (
        "ok      warmup[0]    demonstrations can be filled from 1 rows" in run(tmp_path, recipe=RECIPE + phase).stdout
    )


def test_a_demonstration_that_data_answer_reduced_to_the_gold_is_named(tmp_path: Path) -> None:
    (tmp_path / "worked.jsonl").write_text('{"question": "2+3?", "answer": "2 and 3 make 5 #### 5"}\n')
    recipe = RECIPE.replace("answer: '{answer}'", "") if "answer: '{answer}'" in RECIPE else RECIPE
    rows = [
        "--set",
        "data.train=worked.jsonl",
        "--set",
        "data.eval=worked.jsonl",
        "--set",
        "data.answer={answer | after('####')}",
    ]
    kept = [*rows, "--set", "data.columns={worked: '{answer}'}"]
    alone = run(tmp_path, *rows, recipe=recipe + "warmup: {demonstration: '{answer}', steps: 1, lr: 1e-3}\n")
    assert "warn    warmup[0]" in alone.stdout and "the first: 5" in alone.stdout
    assert "`data.columns: {worked: '{answer}'}` keeps the column" in alone.stdout
    whole = run(tmp_path, *kept, recipe=recipe + "warmup: {demonstration: '{worked}', steps: 1, lr: 1e-3}\n")
    assert "ok      warmup[0]" in whole.stdout


def test_a_model_that_is_not_here_is_said_and_leaves_tokens_unknown(tmp_path: Path) -> None:
    done = run(tmp_path, recipe=RECIPE.replace("builtin:tiny", "nobody/nothing-here"))
    assert done.returncode in (1, 4)  # 4 where the environment keeps the hub's client offline
    assert "model        the model `nobody/nothing-here` is not here" in done.stdout
    assert "hint: `hf download nobody/nothing-here` fetches it" in done.stdout
    assert "unknown tokens       unknown: no `tokenizer.json` of this model on this disk" in done.stdout
    assert "`--full` asks transformers" in done.stdout
