"""Which attention kernels torch may choose from once a model was loaded."""

from __future__ import annotations

import torch

from grpo_cli.policy.model import load_model
from grpo_cli.recipe.sections.recipe import Model


def test_a_loaded_model_never_attends_through_cudnn() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_model(Model(path="builtin:tiny"), device=torch.device("cpu"), seed=0)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
