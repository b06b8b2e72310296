"""What a batch is put through between sampling and the optimizer: nothing that changes the update, less to compute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.train.job import Job
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.train import trainer as seam
from grpo_cli.train.log_probs import LogProbRequest, RolloutLogProbs, SharedPromptLogProbs


@pytest.fixture(autouse=True, scope="module")
def warm_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One warm-up for all: its samples end by themselves, at different lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def trained(
    folder: Path, name: str, *, verify: dict[str, Any] | None = None, **train: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """A trainer after a few steps on random samples, and the run's metrics."""
    recipe = Recipe.model_validate(
        {
            "grpo": 1,
            "model": {"path": "builtin:tiny"},
            "data": {"train": {"from": "tasks:addition3", "limit": 40}, "prompt": "{question}", "answer": "{answer}"},
            "verify": verify or {"regex": {"pattern": "[02468].*[13579]"}},
            "sample": {"prompts": 4, "group": 4, "max_tokens": 24, "micro_batch": 4},
            "warmup": [{"demonstration": "{blurt}", "steps": 20, "lr": 3e-3, "muon_lr": 0.015, "batch": 16}],
            "train": {"steps": 1, "lr": 1e-3, "seed": 5, **train},
            "monitor": {"kl": "off"},
            "run": {"dir": str(folder / name), "save_every": 100},
        }
    )
    job = Job(recipe, label=name, base=folder, display=make_display("none"))
    job.run()
    return job.running.trainer, [m for m in job.running.folder.metrics() if "loss" in m]


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "sapo", "cispo", "luspo", "bnpo"])
def test_rows_of_like_length_share_a_micro_batch_and_the_update_stays(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[list[int]] = [[]]
    compute = seam.hooked_loss

    def seen(trainer: Any, inner: Any, model: Any, inputs: dict[str, Any]) -> Any:
        widths[-1].append(int(inputs["completion_mask"].sum(dim=1).max()))
        return compute(trainer, inner, model, inputs)

    monkeypatch.setattr(seam, "hooked_loss", seen)
    ours, _ = trained(tmp_path, "sorted", loss=loss)
    widths.append([])
    monkeypatch.setattr(seam, "may_sort", lambda *_: False)
    shuffled, _ = trained(tmp_path, "shuffled", loss=loss)
    assert ours.sorts == (loss != "bnpo") and not shuffled.sorts
    assert len(widths[0]) == len(widths[1]) == 4
    if loss == "bnpo":
        assert widths[0] == widths[1]
    else:
        assert widths[0] == sorted(widths[0], reverse=True) and sum(widths[0]) < sum(widths[1])
    # Adam's first step moves every weight by the rate in the direction of its gradient
    moved = (weights(ours) - weights(shuffled)).abs()
    assert float((moved > 1e-5).float().mean()) < 1e-3


def test_old_log_probs_are_those_of_the_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart: list[float] = []
    forwards = [0]
    sampled, scored = RolloutLogProbs.__call__, SharedPromptLogProbs.__call__

    def compared(self: RolloutLogProbs, request: LogProbRequest) -> Any:
        found = sampled(self, request)
        for row, completion in enumerate(self.completions):
            prompt = request.ids_BS[row, : -request.keep][request.mask_BS[row, : -request.keep].bool()].tolist()
            with torch.no_grad():
                logits = request.model(torch.tensor([[*prompt, *completion.token_ids]])).logits[0]
            own = logits[len(prompt) - 1 : -1].log_softmax(-1)
            own = own.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
            apart.append(float((own - found[0][row, : len(own)]).abs().max()))
            assert not found[0][row, len(own) :].any()
        return found

    def counted(self: SharedPromptLogProbs, request: LogProbRequest) -> Any:
        forwards[0] += 1
        return scored(self, request)

    monkeypatch.setattr(RolloutLogProbs, "__call__", compared)
    monkeypatch.setattr(SharedPromptLogProbs, "__call__", counted)
    _, ours = trained(tmp_path, "taken", inner_epochs=2, steps=2)
    taken, forwards[0] = forwards[0], 0
    assert len(apart) == 32 and max(apart) < 1e-4
    monkeypatch.setattr(seam, "are_exact", lambda *_, **__: False)
    _, again = trained(tmp_path, "scored", inner_epochs=2, steps=2)
    assert (taken, forwards[0]) == (17, 19)  # one before the first step shows that training and sampling agree
    for mine, theirs in zip(ours, again, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_entropy_is_the_mean_over_all_tokens_of_the_update_however_micro_batches_are_filled(
    ratio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums: list[tuple[float, int]] = []
    scored = SharedPromptLogProbs.__call__

    def seen(self: SharedPromptLogProbs, request: LogProbRequest) -> Any:
        found = scored(self, request)
        assert found[1] is not None
        if found[1].requires_grad or request.rows is None:  # the loss asks, not the trial before the first step
            sums.append((float(found[1].sum()), int(request.mask_BS[:, -request.keep :].sum())))
        return found

    monkeypatch.setattr(SharedPromptLogProbs, "__call__", seen)
    # what is cut off counts nothing, and fills the last micro-batches
    _, metrics = trained(tmp_path, "cut", ratio=ratio, mask_truncated=True, dead_groups="keep")
    assert sums[-1][1] < sums[0][1] / 4
    whole = sum(total for total, _ in sums) / sum(tokens for _, tokens in sums)
    assert metrics[0]["entropy"] == pytest.approx(whole, rel=1e-5)


def test_dead_rows_are_in_no_measure_of_the_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prune = {"keep": 2, "by": "variance"}
    _, ours = trained(tmp_path, "sorted", loss="grpo", prune=prune, inner_epochs=2)
    monkeypatch.setattr(seam, "may_sort", lambda *_: False)
    _, shuffled = trained(tmp_path, "shuffled", loss="grpo", prune=prune, inner_epochs=2)
    assert ours[0]["clip/total"] > 0
    for key in ("entropy", "clip/total"):
        assert ours[0][key] == pytest.approx(shuffled[0][key], rel=1e-2)


@pytest.mark.parametrize("method", [{}, {"reward_combine": "normalise_then_sum"}, {"scale": "none"}])
def test_what_all_rewards_have_on_top_changes_no_weight(method: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "paid.py").write_text(
        "def near(completions, **_):\n    return [float(len(c) % 5) for c in completions]\n"
        "def far(completions, **_):\n    return [20000000 + reward for reward in near(completions)]\n"
    )
    runs = [
        trained(tmp_path, name, verify={name: {"kind": "python", "function": f"paid.py:{name}"}}, steps=2, **method)
        for name in ("near", "far")
    ]
    (near, near_metrics), (far, far_metrics) = runs
    assert near_metrics[0]["group/with_signal"] > 0 and near_metrics[0]["grad_norm"] > 0
    for key in ("group/with_signal", "reward/std_in_group", "grad_norm", "loss"):
        assert [m[key] for m in far_metrics] == [m[key] for m in near_metrics], key
    assert torch.equal(weights(near), weights(far))


def test_a_critic_teaches_the_same_in_every_unit_of_the_reward(tmp_path: Path) -> None:
    (tmp_path / "paid.py").write_text(
        "def small(completions, **_):\n    return [float(len(c) % 5) for c in completions]\n"
        "def large(completions, **_):\n    return [1e6 * reward for reward in small(completions)]\n"
    )
    critic = {"lr": 1e-2, "warmup_steps": 0}
    (_, small), (_, large) = (
        trained(
            tmp_path,
            name,
            verify={name: {"kind": "python", "function": f"paid.py:{name}"}},
            steps=3,
            algorithm="ppo",
            critic=critic,
        )
        for name in ("small", "large")
    )
    for one, other in zip(small, large, strict=True):
        for key in ("critic/loss", "critic/clip", "critic/explained_variance", "grad_norm"):
            assert other.get(key) == pytest.approx(one.get(key), rel=1e-3, abs=1e-5), key
        for key in ("value/mean", "return/mean", "adv/std"):
            assert other[key] == pytest.approx(1e6 * one[key], rel=1e-3, abs=1.0), key
    assert small[-1]["value/mean"] != 0 and max(m["critic/clip"] for m in small) > 0
