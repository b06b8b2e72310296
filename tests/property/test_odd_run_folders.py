"""Run folders whose files hold something else than a run writes: every command that reads one says so in a sentence, or goes on;
the other runs stay readable. `RUN_FUZZ` sets how many odd folders are tried."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from grpo_cli.app import app
from grpo_cli.display.choose import make_display
from grpo_cli.errors import UserError
from grpo_cli.jobs.train.job import Job
from tests.builders.odd_files import odd_files
from tests.builders.workplaces import tiny_recipe

TRIES = int(os.environ.get("RUN_FUZZ", "132"))
FILES = [
    *("run.json", "metrics.jsonl", "recipe.yaml", "samples/step-000002.jsonl", "eval/step-000002.jsonl"),
    *("eval/step-000000.jsonl", "canary/step-000000.jsonl", "train.log"),
    *(f"checkpoints/step-000002/{name}" for name in ("manifest.json", "grpo.json", "recipe.yaml")),
]
READ = [
    *(["runs", "show", "odd"], ["runs", "show", "odd", "--json"], ["runs", "compare", "good", "odd"]),
    *(["runs", "compare", "odd", "good", "--json"], ["watch", "odd", "--once"], ["report", "odd"]),
    *(["watch", "odd", "--once", "--display", "plain"], ["watch", "odd", "--once", "--display", "json"]),
    *(["report", "good", "--against", "odd", "--out", "both.html"], ["doctor", "odd"], ["pairs", "odd"]),
]
GO_ON = [
    ["train", "--resume", "runs/odd", "--display", "none"],
    ["eval", "odd", "--display", "none", "--set", "eval.samples=1", "--set", "eval.k=[1]"],
    ["export", "odd", "exported", "--force"],
    ["chat", "odd", "--row", "0", "--set", "sample.group=2"],
]
HEAVY = ("*.safetensors", "*.pt", "*.pth", "*.bin", "tokenizer.json")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows and one small run of two steps, both saved and measured."""
    folder = tmp_path_factory.mktemp("real")
    rows = [{"question": f"What is {i}?", "answer": str(i)} for i in range(6)]
    (folder / "canary.jsonl").write_text('{"question": "Capital?", "answer": "Rome"}\n')
    recipe = tiny_recipe(
        folder,
        rows,
        [{"question": "Half of ten?", "answer": "5"}, {"question": "Half of six?", "answer": "3"}],
        verify={"regex": {"pattern": "[a-m]"}, "exact": {"weight": 0.0}},
        eval={"every": 1},
        run={"dir": str(folder / "runs"), "name": "good", "save_every": 1, "report": False},
        monitor={"canary": {"from": "canary.jsonl", "every": 1, "samples": 2}, "gold": "exact"},
    )
    Job(recipe, label="real", base=folder, display=make_display("none")).run()
    return folder


def said(words: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of a command in this process; what is no mistake of a user's flies."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            app(list(words), standalone_mode=False)
        except UserError as err:
            return int(err.code), err.render()
        except SystemExit as left:
            return int(left.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_an_odd_run_is_told_in_a_sentence_and_takes_no_other_with_it(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(real, tmp_path / "here", ignore=shutil.ignore_patterns(*HEAVY))
    good, odd = tmp_path / "here/runs/good", tmp_path / "here/runs/odd"
    shutil.copytree(good, odd)
    monkeypatch.chdir(tmp_path / "here")
    failed = []
    for number, one in enumerate(islice(odd_files(good, FILES, seed=1), TRIES)):
        (odd / one.file).write_bytes(one.content)
        for words in (["runs", "--json"], *(READ[(3 * number + i) % len(READ)] for i in range(3))):
            try:
                _, text = said(words)
            except Exception as err:  # noqa: BLE001 - all of them are told together
                failed.append(f"{' '.join(words)}: {one.file} {one.how}: {type(err).__name__}: {err!s:.80}")
                continue
            if words[0] == "runs" and len(words) == 2:
                listed = {run["name"]: run for run in json.loads(text)["runs"]}
                assert listed["good"]["status"] == "done" and listed["good"]["score"] is not None
                assert "odd" in listed and (one.file != "run.json" or listed["odd"]["status"])
        shutil.copyfile(good / one.file, odd / one.file)
    assert not failed, f"{len(failed)} of {TRIES}:\n" + "\n".join(failed)


def test_an_odd_run_goes_on_from_what_is_whole_or_says_what_is_not(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    shutil.copytree(real, here)
    good, odd = here / "runs/good", here / "runs/odd"
    monkeypatch.chdir(here)
    failed = []
    for number, one in enumerate(islice(odd_files(good, FILES, seed=2), TRIES // 4)):
        shutil.rmtree(odd, ignore_errors=True)
        shutil.copytree(good, odd)
        manifest = json.loads((odd / "run.json").read_text()) | {"status": "interrupted"}
        (odd / "run.json").write_text(json.dumps(manifest))
        if "step-000002/" not in one.file:  # as if it had died in its second step
            shutil.rmtree(odd / "checkpoints/step-000002")
        (odd / one.file).write_bytes(one.content)
        for words in (GO_ON[0], GO_ON[1 + number % 3]):
            try:
                said(words)
            except Exception as err:  # noqa: BLE001
                failed.append(f"{' '.join(words)}: {one.file} {one.how}: {type(err).__name__}: {err!s:.80}")
    assert not failed, f"{len(failed)} of {TRIES // 4}:\n" + "\n".join(failed)
