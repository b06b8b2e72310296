"""Two colocate steps through vLLM on a CPU (`make test-vllm`): its log-probs must be the trained model's after each update.

vLLM on a CPU packs its linear layers and throws the plain weights away, so TRL cannot write new ones into them; the
patch below keeps them. It is a patch of the test alone: on a GPU vLLM keeps them itself.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

RECIPE = {
    "grpo": 1,
    "model": {"path": "builtin:tiny"},
    "data": {"train": {"from": "tasks:addition3", "limit": 64}, "prompt": "{question}", "answer": "{answer}"},
    "verify": {"regex": {"pattern": "[02468].*[13579]"}},
    "sample": {
        "prompts": 4,
        "group": 4,
        "max_tokens": 12,
        "engine": "vllm",
        "vllm": {"mode": "colocate", "max_model_length": 256, "gpu_memory_utilization": 0.1},
    },
    "train": {"steps": 2, "lr": 1e-3},
    "monitor": {"kl": "off"},
}


def keep_plain_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's linear layers multiply by the weight that `load_weights` writes."""
    import torch

    importlib.import_module("vllm.model_executor.layers.utils")

    def keep(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    for name, module in list(sys.modules.items()):
        if name.startswith("vllm") and hasattr(module, "dispatch_cpu_unquantized_gemm"):
            monkeypatch.setattr(module, "dispatch_cpu_unquantized_gemm", keep)


def test_samples_come_from_the_weights_that_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from grpo_cli.display import make_display
    from grpo_cli.recipe.models import Recipe
    from grpo_cli.train.job import Job
    from grpo_cli.train.rollout.engine import Completion, Request
    from grpo_cli.train.rollout.vllm_engine import VllmEngine

    keep_plain_weights(monkeypatch)
    apart: list[float] = []
    sampled = VllmEngine.generate

    def compared(
        self: VllmEngine, requests: Sequence[Request], *args: Any, **more: Any
    ) -> list[list[Completion]]:
        found = sampled(self, requests, *args, **more)
        model = self.trainer.model
        for request, completions in zip(requests, found, strict=True):
            for c in completions:
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([request.prompt_ids + c.token_ids])).logits[0]
                logps = logits[len(request.prompt_ids) - 1 : -1].log_softmax(-1)
                own = logps.gather(1, torch.tensor(c.token_ids)[:, None])[:, 0]
                apart.append(float((own - torch.tensor(c.logps)).abs().max()))
        return found

    monkeypatch.setattr(VllmEngine, "generate", compared)
    recipe = Recipe.model_validate(RECIPE | {"run": {"dir": str(tmp_path / "runs")}})
    done = Job(recipe, label="vllm", base=None, display=make_display("none")).run()
    assert done.steps == 2
    assert len(apart) == 2 * 16
    assert max(apart) < 0.05
