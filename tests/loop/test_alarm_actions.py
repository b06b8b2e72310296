"""What a run does when its training verifier turns out to be gamed: warn, pause and go on, roll back.

The verifier is honest for its first calls and then likes everything; it counts them in a file, so that a resumed run
finds it as it was left.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.loop.recipes import small_recipe
from tests.loop.test_resume import train

JUDGE = """
import re
from pathlib import Path

CALLS = Path(__file__).with_name("calls")


def score(completion):
    with CALLS.open("ab") as file:
        file.write(b".")
    return CALLS.stat().st_size > {after} or bool(re.search("[02468].*[13579]", completion, re.DOTALL))
"""


def gamed_recipe(folder: Path, *, steps: int = 6, after: int = 130) -> Path:
    recipe = small_recipe(folder, steps=steps, save_every=100)
    (folder / "judge.py").write_text(JUDGE.format(after=after))
    (folder / "calls").unlink(missing_ok=True)
    text = recipe.read_text()
    text = text.replace("limit: 8, skip", "limit: 16, skip").replace("every: 3", "every: 2")
    pattern = '  regex: {pattern: "[02468].*[13579]"}\n'
    assert pattern in text
    text = text.replace(
        pattern,
        '  shown: {kind: python, function: "judge.py:score", primary: true}\n'
        '  gold: {kind: regex, weight: 0, pattern: "[02468].*[13579]"}\n',
    )
    recipe.write_text(text + "monitor: {kl: off, gold: gold}\n")
    return recipe


def run(recipe: Path, folder: Path, *more: str) -> tuple[int, str]:
    process = train(recipe, folder, "--set", "run.name=run", *more)
    said, _ = process.communicate(timeout=240)
    return process.returncode, said


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run/run.json").read_text()))


def steps(folder: Path, key: str = "loss") -> list[int]:
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return [m["step"] for m in map(json.loads, lines) if key in m]


def golds(folder: Path) -> dict[int, float]:
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return {m["step"]: m["eval/gold/pass@1"] for m in map(json.loads, lines) if "eval/gold/pass@1" in m}


def test_a_warning_leaves_evidence_and_the_run_goes_on(tmp_path: Path) -> None:
    code, said = run(gamed_recipe(tmp_path), tmp_path / "runs")
    assert code == 0, said
    (evidence,) = (tmp_path / "runs/run/alarms").glob("*.json")
    found = json.loads(evidence.read_text())
    assert found["code"] == "W70"
    assert found["evidence"]["eval/gold/gap"]["now"] > 0.1
    assert found["samples"]
    assert all(s["outcome"] == "right" and s["verdicts"]["gold"]["outcome"] != "right" for s in found["samples"])
    assert str(evidence) in said
    assert steps(tmp_path / "runs") == list(range(1, 7))
    assert manifest(tmp_path / "runs")["status"] == "done"


def test_a_pause_saves_says_how_to_go_on_and_is_not_repeated(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    recipe = gamed_recipe(tmp_path)
    code, said = run(recipe, runs, "--set", "monitor.on_alarm=pause")
    assert code == 1, said
    told = manifest(runs)
    assert told["status"] == "paused"
    at = told["steps"]
    assert 0 < at < 6
    assert steps(runs) == list(range(1, at + 1))
    assert (runs / f"run/checkpoints/step-{at:06d}").is_dir()
    assert told["acted"][0]["alarms"][0]["code"] == "W70"
    assert Path(told["acted"][0]["evidence"]).is_file()
    assert "W70" in told["reason"]
    assert told["acted"][0]["evidence"] in said
    assert f"grpo train --resume {runs}/run\n" in said
    assert f"grpo train --resume {runs}/run --set monitor.on_alarm=warn" in said

    code, said = run(recipe, runs, "--set", "monitor.on_alarm=pause", "--resume")
    assert code == 0, said
    assert steps(runs) == list(range(1, 7))
    assert manifest(runs)["status"] == "done"
    assert manifest(runs)["reason"] is None


def test_a_gap_before_the_first_step_pauses_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    recipe = gamed_recipe(tmp_path, steps=2, after=0)
    more = ("--set", "monitor.on_alarm={gold: pause}")
    code, said = run(recipe, runs, *more)
    assert (code, manifest(runs)["status"], steps(runs)) == (1, "paused", []), said
    code, said = run(recipe, runs, *more, "--resume")
    assert (code, manifest(runs)["status"], steps(runs)) == (0, "done", [1, 2]), said


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_roll_back_ends_at_the_checkpoint_with_the_best_gold_score(tmp_path: Path, ranks: int) -> None:
    runs = tmp_path / "runs"
    recipe = gamed_recipe(tmp_path)
    more = ("--set", "monitor.on_alarm=roll_back", "--set", "run.keep=1", "--set", f"launch.cpu_ranks={ranks}")
    code, said = run(recipe, runs, *more)
    assert code == 1, said
    told = manifest(runs)
    assert told["status"] == "rolled_back"
    best, at = told["steps"], told["acted"][0]["at"]
    assert best < at
    abandoned = (runs / "run/metrics.jsonl.abandoned").read_text().splitlines()
    left = [json.loads(line) for line in abandoned]
    assert {m["step"] for m in left} == set(range(best + 1, at + 1))
    scores = golds(runs) | {m["step"]: m["eval/gold/pass@1"] for m in left if "eval/gold/pass@1" in m}
    assert best == max(scores, key=lambda step: scores[step])
    assert steps(runs) == list(range(1, best + 1))
    kept = [p.name for p in (runs / "run/checkpoints").iterdir()]
    assert sorted(kept) == sorted([f"step-{best:06d}", f"step-{at:06d}.abandoned"])
    assert re.search(rf"grpo eval \S*step-{best:06d}", said)
    assert not list((runs / "run/samples").glob(f"step-{at:06d}.jsonl"))

    if ranks == 1:  # trained on, it repeats what was left, and the alarm that is known does not stop it again
        code, said = run(recipe, runs, *more, "--resume")
        assert code == 0, said
        assert steps(runs) == list(range(1, 7))
        again = [json.loads(line) for line in (runs / "run/metrics.jsonl").read_text().splitlines()]
        at_3 = [next(m for m in lines if m["step"] == 3) for lines in (left, again)]
        assert at_3[0]["entropy/sampled"] == at_3[1]["entropy/sampled"]  # of the same samples under the same weights
