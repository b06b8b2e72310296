"""`grpo verify` on the samples of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_verify import RECIPE, line, outcomes, run


def test_samples_of_a_run_are_read_back_to_the_same_numbers(tmp_path: Path) -> None:
    from grpo_cli.run.records import SampleRecord, dump_line
    from grpo_cli.statistics.step import step_stats
    from grpo_verifiers import Outcome, build

    verifier = build("numeric")
    records = []
    for i in range(24):
        text, fields = (f"\\boxed{{{i % 5}}}" if i % 7 else "no idea", {"answer": str(i // 8), "step": "of the row"})
        verdict = verifier.verify(text, fields)
        records.append(
            SampleRecord(
                3,
                f"row-{i // 8}",
                i // 8,
                "p",
                text,
                fields,
                {"numeric": verdict},
                verdict.outcome,
                verdict.score,
                None,
                5,
            )
        )
    folder = tmp_path / "run" / "samples"
    folder.mkdir(parents=True)
    (folder / "step-000003.jsonl").write_text("".join(dump_line(record.as_json()) for record in records))
    (tmp_path / "run" / "recipe.yaml").write_text(RECIPE.format("verify: {numeric: {}}"))
    got = run(str(folder / "step-000003.jsonl"), "--json")
    assert got.returncode == 0 and "verifiers of `" in got.stderr
    found, wanted = json.loads(got.stdout), step_stats(records, 8, [1, 2, 8])
    groups = found["groups"]
    assert found["mean_reward"] == pytest.approx(wanted["reward/total/mean"])
    assert [groups[key] for key in ("n", "all_wrong", "mixed", "all_right", "with_signal")] == [
        wanted[f"group/{key}"] for key in ("count", "all_wrong", "mixed", "all_right", "with_signal")
    ]
    assert all(groups["pass@k"][str(k)] == pytest.approx(wanted[f"pass@{k}"]) for k in (1, 2, 8))
    assert found["outcomes"]["no_answer"] == sum(record.outcome is Outcome.NO_ANSWER for record in records)


def test_functions_of_a_run_are_found_where_its_recipe_came_from(tmp_path: Path) -> None:
    home, samples = tmp_path / "home", tmp_path / "run" / "samples"
    home.mkdir()
    samples.mkdir(parents=True)
    (home / "mine.py").write_text("def f(completion, answer):\n    return completion == answer\n")
    (tmp_path / "run" / "recipe.yaml").write_text(RECIPE.format("verify: {half: {kind: python, function: 'mine:f'}}"))
    (tmp_path / "run" / "run.json").write_text(json.dumps({"base": str(home)}))
    (samples / "step-000001.jsonl").write_text(line("4") + line("5"))
    got = run(str(samples / "step-000001.jsonl"))
    assert got.returncode == 0 and outcomes(got.stdout) == ["right", "wrong"]


def episode(score: float | None, name: str, **more: object) -> str:
    """A line as a run writes it of an episode."""
    verdict = {"outcome": "right", "score": score, "reason": ""}
    turns = [{"text": "n", "observation": "k0x0y1", "valid": True}, {"text": "done", "observation": ""}]
    said = "[assistant] n\n[environment] k0x0y1\n[assistant] done"
    own = {"completion": said, "turns": turns, "env_tokens": 6, "verdicts": {name: verdict}}
    return json.dumps({"row": "a", "group": "1/0", "prompt": "p", **own, **more}) + "\n"


GAME = RECIPE.format(
    "environment: environments:keydoor\n"
    "verify:\n  game: {kind: environment, right_at: 0.5, primary: true}\n  ends: {kind: regex, pattern: done$}"
)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_of_episodes_the_text_is_judged_again_and_the_outcome_taken(tmp_path: Path, jobs: str) -> None:
    (tmp_path / "r.yaml").write_text(GAME)
    lines = episode(0.75, "game") + episode(0.25, "game") + episode(None, "game")
    done = run("-", "--recipe", "r.yaml", "-j", jobs, stdin=lines, cwd=tmp_path)
    assert outcomes(done.stdout) == ["right", "wrong", "error"]
    assert [json.loads(one)["verdicts"]["ends"]["outcome"] for one in done.stdout.splitlines()] == ["right"] * 3
    assert "episodes 3   `ends`: what was said, judged again" in done.stderr
    assert "`game`: the outcome on record, no world is played again" in done.stderr
    told = json.loads(run("-", "--recipe", "r.yaml", "--json", stdin=lines, cwd=tmp_path).stdout)
    assert told["episodes"] == {"n": 3, "recorded": ["game"], "judged_again": ["ends"]}


def test_an_episode_whose_outcome_is_not_on_record_has_no_verdict_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GAME)
    done = run("-", "--recipe", "r.yaml", stdin=episode(1.0, "other") + episode(1.0, "game"), cwd=tmp_path)
    assert outcomes(done.stdout) == ["error", "right"]
    assert "the line has turns, and no outcome of them under `verdicts.game`" in done.stderr


def test_episodes_judged_without_their_world_are_said(tmp_path: Path) -> None:
    done = run("-", "--regex", "done$", stdin=episode(0.0, "game"), cwd=tmp_path)
    assert outcomes(done.stdout) == ["right"]
    assert "what their worlds made of them is left out: no verifier `environment`" in done.stderr
    plain = run("-", "--regex", "4", "--json", stdin=line("4", turns=3))
    assert "episodes" not in json.loads(plain.stdout)


def test_the_folder_of_a_run_stands_for_its_recipe(tmp_path: Path) -> None:
    home, owned = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    owned.mkdir()
    (home / "mine.py").write_text("def f(completion, answer):\n    return completion == answer\n")
    (owned / "recipe.yaml").write_text(RECIPE.format("verify: {half: {kind: python, function: 'mine:f'}}"))
    (owned / "run.json").write_text(json.dumps({"base": str(home)}))
    (tmp_path / "rows.jsonl").write_text(line("5", answer="5") + line("6", answer="5"))
    by_folder = run(str(tmp_path / "rows.jsonl"), "--recipe", str(owned), "--json")
    by_file = run(str(tmp_path / "rows.jsonl"), "--recipe", str(owned / "recipe.yaml"), "--json")
    assert by_folder.returncode == 0 and json.loads(by_folder.stdout)["outcomes"]["right"] == 1
    assert json.loads(by_folder.stdout)["outcomes"] == json.loads(by_file.stdout)["outcomes"]
    (owned / "run.json").write_text("{}")  # as one that came from elsewhere: its code lies in it
    (owned / "mine.py").write_text((home / "mine.py").read_text())
    refused = run(str(tmp_path / "rows.jsonl"), "--recipe", str(owned))
    assert refused.returncode == 2 and "--trust" in refused.stderr
    assert run(str(tmp_path / "rows.jsonl"), "--recipe", str(owned), "--trust").returncode == 0
