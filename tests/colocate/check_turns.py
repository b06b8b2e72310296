"""Two colocate steps of episodes through the real vLLM (`make test-vllm`): each turn is drawn from the weights that are trained,
and the update is that of a float64 loop over single episodes, of which only the model's own tokens count."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from vllm_runs import ENVIRONMENT, apart_while, run_job
from without_cuda import keep_plain_weights

os.environ |= ENVIRONMENT

WORLD = """
class Coin:
    def reset(self, row, seed):
        self.said = 0
        return "go"

    def step(self, action):
        self.said += sum(map(ord, action))
        return {"observation": "on", "done": action == "stop"}

    def score(self):
        return float(self.said % 2)
"""
"""What was said tosses a coin: random weights are right now and then."""


def loop_of(call: dict[str, Any]) -> tuple[float, float]:
    """Loss and norm of its gradient in float64, an episode at a time and without padding."""
    from grpo_cli.policy.model import load_model
    from grpo_cli.recipe.sections.recipe import Model

    given = call["inputs"]
    # made anew: the trainer's own has a forward that is wrapped and would read the weights of later
    model = load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0).model.double()
    model.load_state_dict(call["weights"])
    mask_BT = given["completion_mask"] * given["tool_mask"]
    total = torch.zeros((), dtype=torch.float64)
    for i, own in enumerate(mask_BT.bool()):
        prompt = given["prompt_ids"][i][given["prompt_mask"][i].bool()]
        said = given["completion_ids"][i][given["completion_mask"][i].bool()]
        logits = model(torch.cat([prompt, said])[None]).logits[0, len(prompt) - 1 : -1]
        logps = logits.log_softmax(-1).gather(1, said[:, None])[:, 0]
        # the ratio of the policy to itself is 1, and its gradient that of the log-prob
        own = own[: len(said)]
        advantage, apart = given["advantages"][i], given["importance_sampling_ratio"][i]
        paid = advantage * apart[0] if len(apart) == 1 else advantage * apart[: len(said)][own]
        total = total - (paid * (logps - logps.detach() + 1)[own]).sum()
    loss = total / mask_BT.sum()
    loss.backward()
    norms = [weight.grad.norm() for weight in model.parameters() if weight.grad is not None]
    return float(loss.detach()), float(torch.stack(norms).norm())


def test_episodes_come_from_the_weights_that_are_trained_and_teach_as_a_loop_over_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import GRPOTrainer

    keep_plain_weights(lambda *what: monkeypatch.setattr(*what))
    apart = apart_while(monkeypatch)
    calls: list[dict[str, Any]] = []
    inner = GRPOTrainer._compute_loss

    def recorded(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        kept = {k: v.clone() for k, v in inputs.items() if isinstance(v, torch.Tensor)}
        calls.append({"weights": copy.deepcopy(model.state_dict()), "inputs": kept})
        return inner(self, model, inputs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", recorded)
    (tmp_path / "world.py").write_text(WORLD)
    started = {"mode": "colocate", "max_model_length": 256, "gpu_memory_utilization": 0.1}
    world = {"python": f"{tmp_path}/world.py:Coin", "max_turns": 3, "turn_tokens": 6, "workers": 1}
    done = run_job(
        tmp_path,
        started,
        environment=world,
        sample={"max_tokens": 60, "micro_batch": 16},
        train={"dead_groups": "keep"},
    )
    assert done.steps == 2
    assert max(apart.now) < 0.02  # vLLM takes half precision
    assert median(apart.before) > 0.2
    steps = [line for line in done.run.metrics() if "grad_norm" in line]
    assert len(calls) == len(steps) == 2
    for call, line in zip(calls, steps, strict=True):
        loss, norm = loop_of(call)
        assert line["loss"] == pytest.approx(loss, abs=1e-5)
        assert line["grad_norm"] == pytest.approx(norm, rel=1e-3)
        assert norm > 0
    (first,) = done.run.path.glob("samples/step-000001.jsonl")
    episodes = [json.loads(line) for line in first.open()]
    assert sum(len(e["turns"]) > 1 for e in episodes) > 8
    own = calls[0]["inputs"]["tool_mask"] * calls[0]["inputs"]["completion_mask"]
    assert int(own.sum()) == sum(turn["tokens"] for e in episodes for turn in e["turns"])
    assert int(calls[0]["inputs"]["completion_mask"].sum()) > int(own.sum())
