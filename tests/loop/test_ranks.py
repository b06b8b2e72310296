"""Two gloo ranks on a CPU: the same run as one process, exact resume, the failing rank's own error, signals."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.loop.recipes import small_recipe
from tests.loop.test_resume import METHODS, finish, kill_after, train, what

TWO = ("--set", "launch.cpu_ranks=2", "--set", "run.name=run")


def samples(run: Path, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"samples/step-{step:06d}.jsonl").open()]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step-{step:06d}/model.safetensors")


def test_two_ranks_train_as_one_does_and_resume_exactly(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=4, save_every=2)
    keep = ("--set", "train.dead_groups=keep")  # all rows are forwarded, so that the entropy is over the same tokens
    finish(train(recipe, tmp_path / "one", "--set", "run.name=run", *keep))
    finish(train(recipe, tmp_path / "two", *TWO, *keep))
    one, two = tmp_path / "one/run", tmp_path / "two/run"
    for step in range(1, 5):
        for a, b in zip(samples(one, step), samples(two, step), strict=True):
            assert (a["row"], a["completion"], a["reward"]) == (b["row"], b["completion"], b["reward"])
            assert a["advantage"] == pytest.approx(b["advantage"], abs=1e-6)
    for name, value in weights(one, 4).items():
        assert torch.allclose(value, weights(two, 4)[name], atol=1e-4)
    keys = ("reward/total/mean", "group/mixed", "entropy", "grad_norm", "loss", "eval/pass@1")
    for a, b in zip(what(one)["metrics"], what(two)["metrics"], strict=True):
        assert {k: a[k] for k in keys if k in a} == pytest.approx({k: b[k] for k in keys if k in b}, abs=1e-4)

    kill_after(train(recipe, tmp_path / "broken", *TWO, *keep), tmp_path / "broken/run/checkpoints/step-000002")
    finish(train(recipe, tmp_path / "broken", *TWO, *keep, "--resume"))
    broken = tmp_path / "broken/run"
    assert what(two) == what(broken)
    assert all(torch.equal(value, weights(broken, 4)[name]) for name, value in weights(two, 4).items())


@pytest.mark.parametrize("method", ["parts apart", "cuts", "mixed inputs", "mixed, anchors written"])
def test_two_ranks_train_by_each_method_as_one_does(tmp_path: Path, method: str) -> None:
    recipe = small_recipe(tmp_path, steps=3, save_every=3)
    sets = [part for one in ["run.name=run", *METHODS[method]] for part in ("--set", one)]
    finish(train(recipe, tmp_path / "one", *sets))
    finish(train(recipe, tmp_path / "two", *sets, *TWO))
    one, two = tmp_path / "one/run", tmp_path / "two/run"
    for step in range(1, 4):
        for a, b in zip(samples(one, step), samples(two, step), strict=True):
            assert (a["row"], a["completion"], a["reward"]) == (b["row"], b["completion"], b["reward"])
            assert a["advantage"] == pytest.approx(b["advantage"], abs=1e-5)
    for name, value in weights(one, 3).items():
        assert torch.allclose(value, weights(two, 3)[name], atol=1e-4), name


def have_the_same_critic(one: Path, two: Path, *more: str) -> None:
    """Two runs of three steps whose critics agree to 3e-4, and what they measured (`more` too) to 1e-4."""
    critics = [torch.load(run / "checkpoints/step-000003/critic/critic.pt")["weights"] for run in (one, two)]
    assert len(critics[0]) == len(critics[1]) > 2
    for a, b in zip(*critics, strict=True):
        # a critic learns ten times as fast, and Adam's first step is a whole one where a gradient is all rounding
        assert torch.allclose(a, b, atol=3e-4)
    keys = ("critic/explained_variance", "critic/loss", "adv/mean", "adv/std", "return/mean", "grad_norm", *more)
    for left, right in zip(what(one)["metrics"], what(two)["metrics"], strict=True):
        found = [{key: side[key] for key in keys if key in side} for side in (left, right)]
        assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_two_ranks_learn_one_critic(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=3, save_every=3)
    # ranks shuffle their own rows, so mini-batches of the policy hold others than on one
    said = (
        "train.algorithm=ppo",
        "train.mini_batches=1",
        "train.critic.warmup_steps=1",
        "train.kl.beta=0.05",
        "monitor.kl=off",
    )
    ppo = [part for one in said for part in ("--set", one)]
    finish(train(recipe, tmp_path / "one", "--set", "run.name=run", *ppo))
    finish(train(recipe, tmp_path / "two", *TWO, *ppo))
    one, two = tmp_path / "one/run", tmp_path / "two/run"
    have_the_same_critic(one, two, "kl")
    first = [samples(run, 2) for run in (one, two)]
    for key in ("advantage", "values"):
        told = [torch.tensor([r[key] for r in rows]) for rows in first]
        assert torch.allclose(*told, atol=1e-4) and told[0].any()


ONE_SIDED = """\
grpo: 1
model: builtin:tiny
data: {train: rows.jsonl, prompt: "{question}", answer: "{answer}"}
verify: {paid: {kind: python, function: "paid.py:paid"}}
sample: {prompts: 2, group: 4, max_tokens: 12}
train: {steps: 2, lr: 1e-3, seed: 3}
monitor: {kl: off}
run: {name: run, save_every: 1, keep: 3}
"""


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp2", marks=pytest.mark.slow)])
def test_a_batch_moves_all_ranks_where_one_has_signal_and_none_where_none_has(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "paid.py").write_text(
        "def paid(completions, answer, **_):\n"
        "    return [float(len(c) % 5) if a == '1' else 0.5 for c, a in zip(completions, answer)]\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"question": "1+0=", "answer": "1"}\n{"question": "2+0=", "answer": "2"}\n')
    recipe = tmp_path / "one_sided.yaml"
    recipe.write_text(ONE_SIDED)
    two = ("--set", "launch.cpu_ranks=2", "--set", f"launch.strategy={strategy}")
    finish(train(recipe, tmp_path / "alone"))
    finish(train(recipe, tmp_path / "ranks", *two))
    finish(train(recipe, tmp_path / "dead", *two, "--set", "train.std_floor=100"))
    alone, ranks, dead = (tmp_path / name / "run" for name in ("alone", "ranks", "dead"))
    for run, empty in ((alone, 0), (ranks, 0), (dead, 1)):
        assert [m["updates/empty"] for m in what(run)["metrics"] if "loss" in m] == [empty] * 2
    # a group a rank, of which one has signal
    assert [m["group/with_signal"] for m in what(ranks)["metrics"] if "loss" in m] == [1, 1]
    for name, value in weights(alone, 2).items():
        assert torch.allclose(value, weights(ranks, 2)[name], atol=1e-4), name
        assert torch.equal(weights(dead, 1)[name], weights(dead, 2)[name]), name
    moved = [not torch.equal(value, weights(ranks, 2)[name]) for name, value in weights(ranks, 1).items()]
    assert any(moved)


def test_a_signal_finishes_the_step_on_every_rank_and_saves(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=5000, save_every=100000)
    process = train(recipe, tmp_path / "run", *TWO)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run/run/samples/step-000002.jsonl").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143, out
    assert "grpo train --resume" in out
    checkpoints = list((tmp_path / "run/run/checkpoints").glob("step-*"))
    assert len(checkpoints) == 1
    assert not list((tmp_path / "run/run/checkpoints").glob(".partial*"))


def test_the_first_failing_rank_tells_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "import os\n\ndef score(completion):\n    return 1.0 if len(completion) % 2 else 0.0\n\n"
        "if os.environ.get('RANK') == '1':\n    raise ImportError('rank one has no such thing')\n"
    )
    recipe = small_recipe(tmp_path, steps=3)
    recipe.write_text(recipe.read_text().replace('regex: {pattern: "[02468].*[13579]"}', 'python: "judge:score"'))
    process = train(recipe, tmp_path / "run", *TWO)
    out, _ = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "rank 1 failed first" in out
    assert "rank one has no such thing" in out
    assert "peer" not in out
