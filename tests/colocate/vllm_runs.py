"""One small run through vLLM, and how far vLLM's log-probs are from the trained model's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

RECIPE = {
    "grpo": 1,
    "model": {"path": "builtin:tiny"},
    "data": {"train": {"from": "tasks:addition3", "limit": 64}, "prompt": "{question}", "answer": "{answer}"},
    # half of what random weights say: the groups are mixed, and the weights move
    "verify": {"regex": {"pattern": "[a-o]"}},
    "sample": {"prompts": 4, "group": 4, "max_tokens": 12, "engine": "vllm"},
    "train": {"steps": 2, "lr": 1e-3},
    "monitor": {"kl": "off"},
}


def run_job(folder: Path, vllm: dict[str, Any], *, resume: Any = None, **sections: dict[str, Any]) -> Any:
    """The outcome of the recipe with these settings of `sample.vllm`, and more keys of its sections."""
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.recipe.sections.recipe import Recipe

    said: dict[str, Any] = RECIPE | {"run": {"dir": str(folder / "runs")}}
    sections["sample"] = sections.get("sample", {}) | {"vllm": vllm}
    said |= {name: said.get(name, {}) | keys for name, keys in sections.items()}
    return Job(Recipe.model_validate(said), label="vllm", base=None, display=make_display("none")).run(resume)


@dataclass
class Apart:
    """For each sample, the largest distance of a token's log-prob from the one of the weights that are trained (`now`),
    and of those of the step before (`before`, from the second step on)."""

    now: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)

    def check(self, most: float) -> None:
        """Both steps sampled from the weights of their time, between which the update had moved them."""
        assert len(self.now) == 2 * len(self.before) == 32
        assert max(self.now) < most
        assert median(self.before) > 10 * most


def apart_while(monkeypatch: pytest.MonkeyPatch) -> Apart:
    """Filled as the engine generates."""
    from grpo_cli.rollout.engine import Completion, Request
    from grpo_cli.rollout.vllm.engine import VllmEngine

    apart, sampled = Apart(), VllmEngine.generate
    weights: dict[int, dict[str, Any]] = {}
    """By step; episodes take several calls in one."""

    def compared(self: VllmEngine, requests: Sequence[Request], *args: Any, **more: Any) -> list[list[Completion]]:
        found = sampled(self, requests, *args, **more)
        model, step = self.trainer.model, self.trainer.state.global_step
        past = weights.get(step - 1)
        for request, completions in zip(requests, found, strict=True):
            for completion in completions:
                apart.now.append(distance(model, {}, request.ids, completion))
                apart.before += [distance(model, past, request.ids, completion)] if past else []
        weights[step] = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        return found

    monkeypatch.setattr(VllmEngine, "generate", compared)
    return apart


def distance(model: Any, weights: dict[str, Any], prompt: list[int], completion: Any) -> float:
    """The largest between a token's log-prob and the model's own, with these weights in place of its."""
    import torch

    with torch.no_grad():
        ids = torch.tensor([prompt + completion.token_ids])
        logits = torch.func.functional_call(model, weights, kwargs={"input_ids": ids}).logits[0]
    logps = logits[len(prompt) - 1 : -1].log_softmax(-1)
    own = logps.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    return float((own - torch.tensor(completion.logps)).abs().max())
