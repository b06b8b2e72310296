"""`train.method: prefer` as a user runs it: every loss trains, a killed run goes on exactly, what gives no pairs says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.data.rows import load_rows
from grpo_cli.recipe.reading.load import load
from tests.loop.program import start
from tests.loop.recipes import small_recipe
from tests.loop.test_resume import finish, kill_after, train, what

PREFER = (
    "train.method=prefer",
    "prefer.batch=4",
    "prefer.length_gap=0.5",
    "sample.group=8",
    "sample.prompts=8",
    "sample.max_tokens=24",
    "run.name=run",
)


def sets(*more: str) -> list[str]:
    return [part for one in (*PREFER, *more) for part in ("--set", one)]


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def ends_as_the_unbroken_one(folder: Path, recipe: Path, more: Sequence[str], last: str) -> None:
    """The run is killed after its second step and resumed: records and weights are those of the run that is not."""
    finish(train(recipe, folder / "straight", *more))
    kill_after(train(recipe, folder / "broken", *more), folder / "broken/run/checkpoints/step-000002")
    assert "resuming run from step-00000" in finish(train(recipe, folder / "broken", *more, "--resume"))
    straight, broken = folder / "straight/run", folder / "broken/run"
    assert what(straight) == what(broken)
    weights = [(run / f"checkpoints/{last}/model.safetensors").read_bytes() for run in (straight, broken)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_a_killed_and_resumed_run_equals_the_unbroken_one(tmp_path: Path, loss: str) -> None:
    recipe, more = (small_recipe(tmp_path, steps=5, save_every=1), sets(f"prefer.loss={loss}", "prefer.epochs=2"))
    ends_as_the_unbroken_one(tmp_path, recipe, more, "step-000005")


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        ("ipo", ()),
        ("irpo", ()),
        ("orpo", ()),
        ("simpo", ()),
        (
            "dpo",
            (
                "model.lora={r: 4}",
                "prefer.micro_batch=2",
                "warmup.0.steps=200",
                "sample.group=32",
                "sample.prompts=20",  # so that each round finds pairs, whatever the rounding of this machine draws
            ),
        ),
    ],
)
def test_a_loss_trains_in_rounds(tmp_path: Path, loss: str, more: tuple[str, ...]) -> None:
    recipe = small_recipe(tmp_path, steps=2, save_every=2)
    finish(train(recipe, tmp_path / "runs", *sets(f"prefer.loss={loss}", *more)))
    run = tmp_path / "runs/run"
    steps = [line for line in lines(run) if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2]
    for line in steps:
        assert line["prefer/pairs"] >= 1 and line["updates"] >= 1 and line["grad_norm"] > 0
        assert line["chosen/logps"] < 0 and line["rejected/logps"] < 0 and line["lr"] > 0
    assert [line["step"] for line in lines(run) if "eval/pass@1" in line] == [0, 2]
    kind = "adapter_model.safetensors" if more else "model.safetensors"
    assert (run / "checkpoints/step-000002" / kind).is_file()
    samples = [json.loads(one) for one in (run / "samples/step-000001.jsonl").open()]
    right = {"right": 1, "wrong": -1}
    assert any(s["advantage"] for s in samples)
    assert all(s["advantage"] * right[s["outcome"]] >= 0 for s in samples)


def test_the_placebo_learns_from_other_pairs_of_the_same_samples(tmp_path: Path) -> None:
    recipe, found = small_recipe(tmp_path, steps=1), []
    for name, more in (("plain", ()), ("placebo", ("train.control=shuffled",))):
        finish(train(recipe, tmp_path / name, *sets(*more)))
        found.append([json.loads(one) for one in (tmp_path / name / "run/samples/step-000001.jsonl").open()])
    plain, placebo = found
    for key in ("completion", "outcome"):
        assert [s[key] for s in plain] == [s[key] for s in placebo]
    assert [s["advantage"] for s in plain] != [s["advantage"] for s in placebo]
    assert any(s["advantage"] < 0 and s["outcome"] == "right" for s in placebo)


SPELT = ("warmup.0.steps=60", "sample.top_k=12", "sample.off_policy_ok=true", "sample.group=16", "sample.prompts=16")
"""Samples that are text: bytes that spell none are not the same when they are read back."""


def run_of_pairs(folder: Path, *more: str) -> tuple[Path, list[str]]:
    """A round that is done, and what a run says that learns from its file of pairs."""
    finish(train(small_recipe(folder, steps=1, save_every=1), folder / "first", *sets(*SPELT)))
    file = folder / "pairs.jsonl"
    args = ["pairs", str(folder / "first/run"), "--length-gap", "0.5", "--out", str(file)]
    finish(start(args, folder / "first"))
    own = [one for one in PREFER if "length_gap" not in one]
    return file, [part for one in (*own, *SPELT, f"prefer.data={file}", *more) for part in ("--set", one)]


def test_a_file_of_a_rounds_pairs_teaches_what_the_round_learned(tmp_path: Path) -> None:
    file, pairs = run_of_pairs(tmp_path)
    finish(train(tmp_path / "small.yaml", tmp_path / "second", *pairs))
    first, second = tmp_path / "first/run", tmp_path / "second/run"
    weights = [(run / "checkpoints/step-000001/model.safetensors").read_bytes() for run in (first, second)]
    assert weights[0] == weights[1]
    (drawn, read) = ([line for line in lines(run) if "loss" in line] for run in (first, second))
    same = ("loss", "grad_norm", "prefer/pairs", "prefer/rows", "chosen/logps", "prefer/margin", "updates")
    assert [{key: line[key] for key in same} for line in drawn] == [{key: line[key] for key in same} for line in read]
    assert read[0]["prefer/pairs"] == len(file.read_text().splitlines()) and "reward/total/mean" not in read[0]
    assert not list((second / "samples").glob("step-*"))
    assert [line["step"] for line in lines(second) if "eval/pass@1" in line] == [0, 1]


def test_a_file_of_fewer_rows_than_a_step_would_draw_teaches_and_so_does_its_placebo(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=2, save_every=2)
    rows = load_rows(load(str(recipe), ["data.train.limit=2"]).data, "train")
    pairs = [
        {"row": row.id, "prompt": row.prompt, "chosen": f"{n}", "rejected": f"{n + 4}"}
        for row in rows
        for n in range(4)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    own = ("train.method=prefer", "prefer.data=pairs.jsonl", "data.train.limit=2", "run.name=run")
    said = [part for one in own for part in ("--set", one)]
    finish(train(recipe, tmp_path / "plain", *said))
    finish(train(recipe, tmp_path / "placebo", *said, "--set", "train.control=shuffled"))
    plain, placebo = (
        [line for line in lines(tmp_path / name / "run") if "loss" in line] for name in ("plain", "placebo")
    )
    for line, other in zip(plain, placebo, strict=True):
        assert line["prefer/pairs"] == other["prefer/pairs"] == 8 and line["prefer/rows"] == 2
        assert line["chosen/logps"] != other["chosen/logps"]


def test_a_killed_run_over_a_file_of_pairs_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    _, pairs = run_of_pairs(tmp_path, "prefer.loss=kto", "train.steps=6")
    recipe = tmp_path / "small.yaml"
    ends_as_the_unbroken_one(tmp_path, recipe, pairs, "step-000006")


def test_a_held_out_row_in_the_file_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=1)
    held_out = load_rows(load(str(recipe)).data, "eval")[0]
    line = {"row": held_out.id, "prompt": held_out.prompt, "chosen": "1", "rejected": "2"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(line) + "\n")
    more = ["--set", "train.method=prefer", "--set", "prefer.data=pairs.jsonl", "--display", "none"]
    process = train(recipe, tmp_path / "runs", *more)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 3, out
    assert "error: pairs.jsonl:1: 1 of 1 pairs are of held-out rows" in out and "Traceback" not in out
    assert not [*(tmp_path / "runs").glob("*/run.json")]


@pytest.mark.parametrize(
    ("pattern", "said"), [("(?s).*", "no wrong sample"), ("never", "no right sample")], ids=["right", "wrong"]
)
def test_a_step_without_pairs_is_one_sentence_and_exit_code_5(tmp_path: Path, pattern: str, said: str) -> None:
    recipe = small_recipe(tmp_path, steps=1)
    process = train(recipe, tmp_path / "runs", *sets(f"verify.regex.pattern={pattern}"), "--display", "none")
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 5, out
    assert sum(line.startswith("error: ") and said in line for line in out.splitlines()) == 1
    assert "Traceback" not in out
