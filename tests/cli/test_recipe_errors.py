"""What a person sees who got a recipe wrong: one clear text on stderr, exit code 2, no traceback, and no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "trl", "datasets", "sympy", "math_verify", "scipy", "pandas", "numpy")
GOOD = 'model: some/model\ndata: {train: a.jsonl, prompt: "{question}"}\nverify: {math: {}}\ntrain: {steps: 10}\n'


def grpo(*args: str, cwd: Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "grpo_cli", *args], cwd=cwd, env=env, capture_output=True, input=stdin or b""
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def refused(tmp_path: Path, text: str, *sets: str) -> str:
    (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
    flags = [part for one in sets for part in ("--set", one)]
    done = grpo("train", "r.yaml", *flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_an_unknown_key_is_shown_with_caret_and_hint(tmp_path: Path) -> None:
    assert refused(tmp_path, GOOD + "sample:\n  groop: 8\n") == (
        "error: r.yaml:6:3: unknown key `groop` in `sample`\n"
        "     6 |   groop: 8\n"
        "       |   ^^^^^\n"
        "\n"
        "hint: did you mean `group`? `sample` has: ban, engine, group, max_tokens, micro_batch, min_p, mix, off_policy_ok,"
        " prompts, repetition_penalty, stop, temperature, top_k, top_p, vllm\n"
    )


def test_all_mistakes_of_files_and_flags_come_at_once_in_order(tmp_path: Path) -> None:
    text = GOOD.replace("steps: 10", "steps: 2.5, lr: 1e-6x") + "sample: {group: 0}\n"
    assert refused(tmp_path, text, "sample.max_tokens=abc") == (
        "error: r.yaml:4:16: `train.steps` must be a whole number, got 2.5\n"
        "     4 | train: {steps: 2.5, lr: 1e-6x}\n"
        "       |                ^^^\n"
        'error: r.yaml:4:25: `train.lr` must be a number, got "1e-6x"\n'
        "     4 | train: {steps: 2.5, lr: 1e-6x}\n"
        "       |                         ^^^^^\n"
        "error: r.yaml:5:17: `sample.group` must be above 0, got 0\n"
        "     5 | sample: {group: 0}\n"
        "       |                 ^\n"
        'error: --set sample.max_tokens=abc: `sample.max_tokens` must be a whole number, got "abc"\n'
        "4 errors, nothing was started\n"
    )


def test_a_missing_section_says_what_it_is_for(tmp_path: Path) -> None:
    text = refused(tmp_path, "model: x\n")
    assert "`train` is missing" in text and "`verify` is missing" in text and "3 errors" in text


def test_ten_mistakes_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    text = refused(tmp_path, GOOD + "".join(f"key{i}: {i}\n" for i in range(14)))
    assert "… and 4 more" in text and "14 errors" in text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "the recipe is empty"),
        ("- a\n- b\n", "not a mapping"),
        ("a: [1,\n", "r.yaml:2:1: not YAML: the file ends before this is closed\n"),
        (GOOD + "model: y\n", "r.yaml:5:1: key `model` is said twice, first on line 1"),
    ],
)
def test_text_that_is_no_recipe_is_refused(tmp_path: Path, text: str, part: str) -> None:
    assert part in refused(tmp_path, text)


def test_an_unknown_name_lists_the_shipped_ones(tmp_path: Path) -> None:
    done = grpo("train", "quickstrat", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean `quickstart`?" in done.stderr


def test_a_folder_and_a_binary_file_are_no_recipes(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in grpo("train", "b.yaml", cwd=tmp_path).stderr
    assert "is a folder" in grpo("train", ".", cwd=tmp_path).stderr


def test_a_recipe_comes_from_stdin_too(tmp_path: Path) -> None:
    done = grpo("train", "-", cwd=tmp_path, stdin=b"model: 3\n")
    assert done.returncode == 2
    assert "error: <stdin>:1:8: `model` must be a name or a mapping, got 3" in done.stderr


def test_a_recipe_error_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GOOD + "sample: {groop: 8}\n", encoding="utf-8")
    program = (
        "import json, sys\n"
        "sys.argv = ['grpo', 'train', 'r.yaml']\n"
        "from grpo_cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 2, end.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert not set(HEAVY) & set(json.loads(done.stdout))


def test_schema_prints_json_alone_on_stdout(tmp_path: Path) -> None:
    done = grpo("schema", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["title"] == "grpo recipe"
