"""What an exported folder says of itself, and that nothing is overwritten on the hub unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from grpo_cli.app import app
from grpo_cli.jobs.export import folder as exporting
from grpo_cli.jobs.export.folder import card_of
from grpo_cli.recipe.reading.load import load
from grpo_cli.resilience import model_source
from tests.builders.report_runs import make_run


def test_the_card_has_the_curve_up_to_the_checkpoint_with_intervals_and_the_recipe(tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", hostile=False)
    card = card_of(load("quickstart"), run.checkpoint_path(10))
    rows = [line.split(" | ") for line in card.splitlines() if line.startswith("| ") and line[2].isdigit()]
    lines = {m["step"]: m for m in run.metrics() if "eval/pass@1" in m}
    assert [row[0] for row in rows] == ["| 0", "| 5", "| 10"]
    assert rows[2][1] == f"{lines[10]['eval/pass@1']:.3f}"
    assert rows[2][2] == f"{lines[10]['eval/pass@1/low']:.3f} to {lines[10]['eval/pass@1/high']:.3f}"
    assert "for 10 steps" in card and "`math` (math, weight 1, primary)" in card
    assert card.startswith("---\n") and "base_model" not in card
    assert "model: builtin:tiny" in card or "path: builtin:tiny" in card


def test_a_base_of_the_hub_is_named_and_a_model_alone_claims_nothing() -> None:
    card = card_of(load("quickstart", ["model.path=Qwen/Qwen2.5-0.5B"]), None)
    assert "base_model: Qwen/Qwen2.5-0.5B" in card
    assert "Not measured." in card


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_a_repository_that_exists_is_written_to_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    pushed: list[str] = []
    monkeypatch.setattr(exporting, "is_there", lambda repository: True)
    monkeypatch.setattr(model_source, "find_model_source", lambda *_: None)
    monkeypatch.setattr(exporting, "write_folder", lambda source, out, gguf: out.mkdir())
    monkeypatch.setattr(exporting, "push_folder", lambda out, repository: pushed.append(repository))
    done = CliRunner().invoke(app, ["export", "last", str(tmp_path / "out"), "--push", "me/model", *words])
    assert pushed == (["me/model"] if words else [])
    assert (tmp_path / "out").exists() is bool(words)
    assert (done.exception is None) is bool(words)
    if not words:
        assert "exists on the hub" in str(done.exception)
