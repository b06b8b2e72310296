"""Two gloo ranks on a CPU that hold a share each: the run of two plain ranks, half the memory, exact resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.loop.recipes import small_recipe
from tests.loop.test_ranks import TWO, have_the_same_critic, samples, weights
from tests.loop.test_resume import finish, train, what


def metrics(run: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if "loss" in row]


def compare_with_plain_ranks(folder: Path, strategy: str, *, held: float, state: list[str]) -> str:
    """Train with two plain ranks, with two of this strategy, and again from its checkpoint at half-way; what was said.

    `held` is the share of weights and optimizer state on a rank, `state` the files of optimizer state in a checkpoint.
    """
    recipe = small_recipe(folder, steps=4, save_every=2)
    more = (*TWO, "--set", "monitor.kl.every=2", "--set", "sample.micro_batch=4")
    sharded = (*more, "--set", f"launch.strategy={strategy}")
    finish(train(recipe, folder / "plain", *more))
    said = finish(train(recipe, folder / "shards", *sharded))
    plain, shards = folder / "plain/run", folder / "shards/run"
    for step in range(1, 5):
        for a, b in zip(samples(plain, step), samples(shards, step), strict=True):
            assert (a["row"], a["completion"], a["reward"]) == (b["row"], b["completion"], b["reward"])
            assert a["advantage"] == pytest.approx(b["advantage"], abs=1e-6)
    whole = weights(plain, 4)
    assert whole.keys() == weights(shards, 4).keys()
    for name, value in whole.items():
        assert torch.allclose(value, weights(shards, 4)[name], atol=1e-4), name
    keys = ("entropy", "grad_norm", "loss", "kl")
    for one, two in zip(metrics(plain), metrics(shards), strict=True):
        assert {k: one[k] for k in keys if k in one} == pytest.approx({k: two[k] for k in keys if k in two}, abs=1e-4)

    full_mib = 3 * sum(v.numel() * 4 for v in whole.values()) / 2**20  # the weights and Adam's two moments
    assert metrics(plain)[-1]["memory/held_mib"] == pytest.approx(full_mib, rel=0.01)
    assert metrics(shards)[-1]["memory/held_mib"] == pytest.approx(full_mib * held, rel=0.1)

    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(shards / "checkpoints/step-000004")
    assert torch.equal(loaded.get_input_embeddings().weight, weights(shards, 4)["model.embed_tokens.weight"])

    broken, last = folder / "broken", Path("checkpoints/step-000004")
    shutil.copytree(shards, broken)
    shutil.rmtree(broken / last)
    finish(train(recipe, folder / "shards", *sharded, "--resume", str(broken)))
    assert what(shards) == what(broken)
    for file in ["model.safetensors", *state]:
        assert (shards / last / file).read_bytes() == (broken / last / file).read_bytes(), file
    return said


def test_shards_train_as_plain_ranks_do_and_resume_exactly(tmp_path: Path) -> None:
    state = [f"optimizer_0/__{rank}_0.distcp" for rank in range(2)]
    said = compare_with_plain_ranks(tmp_path, "fsdp2", held=1 / 2, state=state)
    assert "a whole copy of the weights for rollouts takes" in said


def refuse_a_step(folder: Path, strategy: str) -> None:
    """An absurd learning rate makes the second update of a batch non-finite: it is skipped, and the first one stands."""
    recipe = small_recipe(folder, steps=1, save_every=1)
    sets = ("train.inner_epochs=2", "train.lr=1e30", "stop.on=[]", "data.eval=null", "eval.every=null")
    more = [*TWO, *(part for one in sets for part in ("--set", one))]
    said = finish(train(recipe, folder / "run", *more, "--set", f"launch.strategy={strategy}"))
    assert said.count("the step is skipped") == 1
    for name, value in weights(folder / "run/run", 1).items():
        assert 0.5e30 < value.abs().max() < 1.5e30, name  # each update of Adam moves by the learning rate


def test_a_state_shared_out_is_that_of_plain_ranks_and_goes_on_alone(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=4, save_every=2)
    sets = ("monitor.kl=off", "train.trl={weight_decay: 0.1}", "train.schedule=constant", "train.lr=1e-4")
    alike = tuple(part for one in sets for part in ("--set", one))
    finish(train(recipe, tmp_path / "plain", *TWO, *alike))
    finish(train(recipe, tmp_path / "share", *TWO, *alike, "--set", "launch.strategy=zero1"))
    plain, share, last = tmp_path / "plain/run", tmp_path / "share/run", Path("checkpoints/step-000004")
    whole = weights(plain, 4)
    for name, value in whole.items():
        assert torch.allclose(value, weights(share, 4)[name], rtol=0, atol=1e-7), name
    state, theirs = (torch.load(run / last / "optimizer.pt") for run in (share, plain))
    assert state["state"].keys() == theirs["state"].keys() and len(state["param_groups"]) == 2
    for at, moments in state["state"].items():
        assert torch.allclose(moments["exp_avg"], theirs["state"][at]["exp_avg"], rtol=0, atol=1e-7)
        assert moments["step"] == theirs["state"][at]["step"]
    full_mib = sum(v.numel() * 4 for v in whole.values()) / 2**20
    assert metrics(share)[-1]["memory/held_mib"] == pytest.approx(full_mib * 2, rel=0.1)

    # two ranks, then one, then two again: from step 2 to 3, and from 3 to 4
    for step, ranks in ((3, 1), (4, 2)):
        if step == 3:
            shutil.rmtree(share / last)
        said = ("--set", f"launch.cpu_ranks={ranks}", "--set", f"train.steps={step}", "--set", "run.name=run")
        said += ("--set", "launch.strategy=zero1", "--resume", str(share), "--resume-anyway")
        finish(train(recipe, tmp_path / "share", *alike, *said))
    for name, value in whole.items():
        assert torch.allclose(value, weights(share, 4)[name], rtol=0, atol=1e-5), name


def test_shards_of_half_precision_weights_have_no_copies_in_float32(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=2, save_every=2)
    finish(train(recipe, tmp_path / "first", "--set", "run.name=run"))
    model = f"model={{path: {tmp_path}/first/run/checkpoints/step-000002, dtype: bfloat16}}"
    sets = (model, "warmup=[]", "sample.micro_batch=2", "monitor.kl=off")
    more = (*TWO, *(part for one in sets for part in ("--set", one)))
    finish(train(recipe, tmp_path / "plain", *more))
    finish(train(recipe, tmp_path / "shards", *more, "--set", "launch.strategy=fsdp2"))
    plain, shards = metrics(tmp_path / "plain/run"), metrics(tmp_path / "shards/run")
    assert shards[-1]["memory/held_mib"] == pytest.approx(plain[-1]["memory/held_mib"] / 2, rel=0.1)
    saved = weights(tmp_path / "shards/run", 2)
    assert {value.dtype for value in saved.values()} == {torch.bfloat16}
    assert shards[0]["loss"] == pytest.approx(plain[0]["loss"], abs=2e-3)
    assert shards[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=0.05)


@pytest.mark.slow
def test_a_refused_step_leaves_the_shards_alone(tmp_path: Path) -> None:
    refuse_a_step(tmp_path, "fsdp2")


def test_a_critic_beside_shards_is_the_one_beside_plain_ranks(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, steps=3, save_every=3)
    said = (
        "train.algorithm=ppo",
        "train.mini_batches=1",
        "train.critic.warmup_steps=1",
        "monitor.kl=off",
        "sample.micro_batch=4",
    )
    ppo = (*TWO, *(part for one in said for part in ("--set", one)))
    finish(train(recipe, tmp_path / "plain", *ppo))
    finish(train(recipe, tmp_path / "shards", *ppo, "--set", "launch.strategy=fsdp2"))
    plain, shards = tmp_path / "plain/run", tmp_path / "shards/run"
    have_the_same_critic(plain, shards, "loss")
    for name, value in weights(plain, 3).items():
        assert torch.allclose(value, weights(shards, 3)[name], atol=1e-4), name
