"""The trainers without a reference, which TRL keeps among its experimental ones: imported where a recipe asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

from grpo_cli.train.prefer.trainers import GuardedTrainer, Inputs

IGNORED = -100


class FreePairTrainer(GuardedTrainer):
    """The common part of CPO (SimPO) and ORPO: rows hold token ids as well as texts."""

    def tokenize_row(self, feature: Mapping[str, Any], model: nn.Module | None = None) -> Inputs:
        """The columns that TRL makes from texts, made from token ids instead."""
        prompt: list[int] = feature["prompt_ids"]
        found: Inputs = {"prompt_input_ids": prompt, "prompt_attention_mask": [1] * len(prompt)}
        for name in ("chosen", "rejected"):
            answer: list[int] = feature[f"{name}_ids"]
            found[f"{name}_input_ids"] = prompt + answer
            found[f"{name}_attention_mask"] = [1] * (len(prompt) + len(answer))
            # the prompt is context and not learned; torch's cross entropy skips -100
            found[f"{name}_labels"] = [IGNORED] * len(prompt) + answer
        return found


class SimpoTrainer(FreePairTrainer, CPOTrainer):  # type: ignore[misc]
    """SimPO."""


class OrpoTrainer(FreePairTrainer, ORPOTrainer):  # type: ignore[misc]
    """ORPO. As in TRL, the loss on winners includes their prompts."""


KINDS: dict[str, type[GuardedTrainer]] = {"orpo": OrpoTrainer, "simpo": SimpoTrainer}
"""By `prefer.loss`."""
