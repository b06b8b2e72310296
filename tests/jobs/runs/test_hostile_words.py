"""Words of others in what a terminal shows: no control character gets through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_cli.errors import Mistake, UserError
from grpo_cli.jobs.runs import lines_of, rows_of, summarise
from grpo_cli.run.folder import RunFolder
from tests.builders.report_runs import make_run

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b1m\u202eb"


def test_no_field_of_a_run_json_reaches_the_terminal_raw(tmp_path: Path) -> None:
    make_run(tmp_path, "seed-0", hostile=False)
    path = tmp_path / "seed-0" / "run.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({key: EVIL if isinstance(value, str) else value for key, value in kept.items()}))
    run = RunFolder.open(tmp_path / "seed-0")
    shown = [*lines_of(run), *(cell for row in rows_of([summarise(run)]) for cell in row)]
    assert any("owned" in line for line in shown)
    assert all(line.isprintable() for line in shown)


@pytest.mark.parametrize("place", [EVIL, "rows.jsonl:1"])
def test_an_error_that_quotes_others_is_printed_without_control_characters(place: str) -> None:
    said = UserError([Mistake(place, EVIL, source=f"  3 | {EVIL}\n    | ^")], hint=EVIL).render()
    assert said.count("owned") >= 3 and len(said.splitlines()) == 5
    assert all(line.isprintable() for line in said.split("\n"))
