"""Text of a file, a model, a reward or an exception that reaches a terminal: no command hands on its control characters."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.logging import disable_progress_bar

from grpo_cli.app import app
from grpo_cli.display.choose import make_display
from grpo_cli.errors import UserError
from grpo_cli.jobs.train.job import Job
from grpo_cli.text import visible_lines, visible_streams
from tests.builders.workplaces import tiny_recipe

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1A\u202e\u2066x\rback\x1b]8;;http://evil\x1b\\link"
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, a reward and a run whose every text is hostile."""
    disable_progress_bar()  # which return to the beginning of their line
    folder = tmp_path_factory.mktemp("hostile")
    rows = [{"question": f"{i} {HOSTILE}", "answer": HOSTILE, "completion": HOSTILE} for i in range(6)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(
        f"def f(completion, row):\n    print({HOSTILE!r})\n"
        f"    return {{'score': float(len(completion) % 2), 'reason': {HOSTILE!r}}}\n"
        f"def bad(completion, row):\n    raise ValueError({HOSTILE!r})\n"
    )
    keys: dict[str, Any] = {
        "verify": {"python": {"function": "reward.py:f"}},
        "run": {"dir": "runs", "name": "one", "save_every": 1, "report": False},
        "eval": {"every": 1, "k": [1], "samples": 1},
    }
    recipe = tiny_recipe(folder, rows, rows[:2], **keys)
    with contextlib.chdir(folder):
        Job(recipe, label=f"r{HOSTILE}", base=folder, display=make_display("none")).run()
        written = (folder / "runs/one/recipe.yaml").read_text()
        (folder / "recipe.yaml").write_text(written.replace("name: one", "name: two"))
        (folder / "bad.yaml").write_text(
            written.replace("name: one", "name: bad").replace("reward.py:f", "reward.py:bad")
        )
        bent = {"recipe": HOSTILE, "device": HOSTILE, "warnings": [HOSTILE], "reason": HOSTILE, "status": "failed"}
        bent |= {"acted": [{"action": "pause", "at": 1, "evidence": HOSTILE}], "argv": [HOSTILE]}
        manifest = json.loads((folder / "runs/one/run.json").read_text())
        shutil.copytree("runs/one", "runs/bent")
        (folder / "runs/bent/run.json").write_text(json.dumps(manifest | bent))
        (folder / "hostile.yaml").write_text(json.dumps({"model": HOSTILE, HOSTILE: 1}))
        (folder / "config.json").write_text(
            json.dumps({"model_name_or_path": HOSTILE, "learning_rate": HOSTILE, HOSTILE: 1})
        )
    return folder


COMMANDS = [
    *(["runs"], ["runs", "show", "bent"], ["runs", "compare", "one", "bent"], ["watch", "bent", "--once"]),
    *(["watch", "bent", "--once", "--display", "plain"], ["report", "bent"], ["doctor", "bent"], ["pairs", "one"]),
    *(["explain", HOSTILE], ["explain", "hostile.yaml"], ["init", "made", "--from", "config.json"]),
    *(["init", HOSTILE], ["init", "made2", "--model", HOSTILE], ["runs", "show", HOSTILE]),
    *(["export", HOSTILE, "out"], ["export", "bent", f"out{HOSTILE[:5]}"], ["eval", "one", "--display", "plain"]),
    *(["chat", "one", "--row", "0", "--samples", "1"], ["chat", HOSTILE], ["check", "recipe.yaml"]),
    *(["check", "bad.yaml"], ["check", "hostile.yaml"], ["train", "recipe.yaml", "--dry-run"]),
    *(["train", "bad.yaml", "--display", "plain"], ["train", "--resume", "runs/bent", "--display", "plain"]),
    *(["probe", "recipe.yaml", "-n", "2", "--samples", "2", "--display", "plain"], ["verify", "rows.jsonl", "--recipe", "recipe.yaml"]),
    *(["audit", "verifier", "--recipe", "recipe.yaml", "--rows", "2"], ["audit", "verifier", "--recipe", "bad.yaml", "--rows", "2"]),
    *(["audit", "data", "recipe.yaml", "--rows", "2", "--samples", "2", "--display", "plain"], ["sweep", "recipe.yaml"]),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: visible_lines(" ".join(words))[:40])
def test_no_command_hands_on_control_characters(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    refusal = ""
    try:
        app(words, standalone_mode=False)
    except UserError as err:
        refusal = visible_lines(err.render())  # as `main` prints it
    except SystemExit:
        pass
    out, err_out = capfd.readouterr()
    printed = out + err_out + refusal
    assert printed, "a command that prints nothing shows nothing here"
    found = STEERS.search(re.sub(r"(?m)^\r", "", printed))
    assert found is None, printed[max(0, found.start() - 60) : found.end() + 20]


def test_what_any_code_prints_is_visible_and_the_streams_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with visible_streams():
        print(HOSTILE, "\n", HOSTILE)
        sys.stderr.writelines([HOSTILE, "\r 50 %"])
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    assert not STEERS.search(out) and "␛]0;owned␇" in out
    assert not STEERS.search(err.replace("\r 50", " 50")) and "\r 50 %" in err
