"""What can be known of a recipe's rows, functions, model and machine is refused before torch is imported, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.loop.recipes import environment

RECIPE = """\
model: builtin:tiny
data: {train: rows.jsonl, eval: held.jsonl, prompt: "{question}"}
verify: {math: {}}
sample: {prompts: 2, group: 4, max_tokens: 8}
train: {steps: 2, lr: 1e-4}
"""
RUN = """\
import sys
from grpo_cli.app import main
try:
    main()
except SystemExit as ended:
    print(f"exit {ended.code}", sorted({"torch", "transformers", "trl"} & sys.modules.keys()))
"""


def run(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "r.yaml").write_text(RECIPE)
    for name, question in (("rows", "1+{}=?"), ("held", "2+{}=?")):
        rows = [f'{{"question": "{question.format(i)}", "answer": "{i}"}}\n' for i in range(2)]
        (folder / f"{name}.jsonl").write_text("".join(rows))
    (folder / "f.py").write_text("def f(completion, gone):\n    return 1.0\n")
    command = [sys.executable, "-c", RUN, *words]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True)


TRAIN = {
    "data.train=no.jsonl": (3, "data.train: no file `no.jsonl`"),
    "data.eval=no.jsonl": (3, "data.eval: no file `no.jsonl`"),
    "data.train=tasks:no_such": (2, "no_such"),
    "data.prompt={gone}": (3, "no column `gone`"),
    "verify={numeric: {}, math: {weight: 0.5}}#data.answer={question} x": (3, "is no number"),
    "sample.prompts=3": (3, "0 steps would run"),
    "model=./no": (4, "no model folder `./no`"),
    "model={path: 'builtin:tiny', tokenizer: ./no}": (4, "`./no`"),
    "verify={f: {kind: python, function: 'no.py:f'}}": (2, "no file `no.py`"),
    "verify={f: {kind: python, function: 'f.py:no'}}": (2, "no"),
    "verify={f: {kind: python, function: 'f.py:f'}}": (3, "no column `gone`"),
    "environment={path: 'no.py:World'}": (2, "no.py"),
    "monitor.canary={from: no.jsonl}": (3, "monitor.canary: no file `no.jsonl`"),
    "warmup=[{data: no.jsonl, demonstration: '{question}', steps: 1, lr: 1e-3}]": (
        3,
        "warmup[0].data: no file `no.jsonl`",
    ),
    "launch.gpus=64": (4, "`launch.gpus` asks for 64 GPUs"),
    "run.track=[trackio]": (4, "`run.track: [trackio]` needs the package `trackio`"),
    "run.webhook=env:NO_SUCH_VARIABLE": (4, "NO_SUCH_VARIABLE"),
    "run.dir=r.yaml": (4, "cannot write to `r.yaml`"),
}


@pytest.mark.parametrize("change", TRAIN)
def test_train_refuses_it_before_torch_is_imported(tmp_path: Path, change: str) -> None:
    code, words = TRAIN[change]
    done = run(tmp_path, ["train", "r.yaml", *(word for one in change.split("#") for word in ("--set", one))])
    assert done.stdout == f"exit {code} []\n", done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("probe r.yaml --set data.train=no.jsonl", "no file `no.jsonl`"),
        ("probe r.yaml --set model=./no", "no model folder `./no`"),
        ("eval builtin:tiny --recipe r.yaml --set data.eval=no.jsonl", "no file `no.jsonl`"),
        ("eval ./no --recipe r.yaml", "no model folder `./no`"),
        ("eval builtin:tiny --against ./no --recipe r.yaml", "no model folder `./no`"),
        ("chat builtin:tiny --recipe r.yaml --row 1 --set data.train=no.jsonl", "no file `no.jsonl`"),
        ("chat ./no", "no model folder `./no`"),
        ("pairs r.yaml --set data.train=no.jsonl", "no file `no.jsonl`"),
        ("audit data r.yaml --set data.train=no.jsonl", "no file `no.jsonl`"),
    ],
)
def test_other_jobs_that_load_a_model_do_so_too(tmp_path: Path, words: str, said: str) -> None:
    done = run(tmp_path, words.split())
    assert done.stdout in ("exit 3 []\n", "exit 4 []\n"), done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_later_stage_is_asked_for_before_the_first_begins(tmp_path: Path) -> None:
    stages = "stages=[{name: a}, {name: b, train: {trl: {optim: adamw_bnb_8bit}}}]"
    done = run(tmp_path, ["train", "r.yaml", "--set", stages])
    assert done.stdout == "exit 4 []\n" and "needs the package `bitsandbytes`" in done.stderr
