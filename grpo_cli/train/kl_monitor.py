"""How far the policy has moved from the model the run started from, measured without penalising it.

TRL has no reference model where `kl.beta` is 0, and then no KL at all. Here a few samples of every Nth step are scored
under the reference; on other steps the KL is not measured, and no number stands in for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from grpo_cli.algorithm.kl import token_kl
from grpo_cli.algorithm.spread import loss_mask
from grpo_cli.policy.reference import Reference
from grpo_cli.recipe.sections.course import KlMonitor
from grpo_cli.train.trl_hooks import Batch, ScoringTrainer, score

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe


class KlWatch:
    """The KL monitor of a run, with its copy of the weights."""

    def __init__(self, spec: KlMonitor, model: nn.Module) -> None:
        self.spec = spec
        # between uses the copy lies in main memory, where the model is on a GPU
        self.reference = Reference(model, offload=True)

    def is_due(self, step: int) -> bool:
        """Whether the step (counted from 1) is measured."""
        return step % self.spec.every == 0

    def measure(self, trainer: ScoringTrainer, out: Batch) -> dict[str, float]:
        """`kl`: k3 averaged over the tokens of the first samples of each rank, policy against reference."""
        rows = min(self.spec.rows, len(out["completion_ids"]))
        now = score(trainer, out, rows)
        with self.reference.swapped_in():
            ref = score(trainer, out, rows)
        mask, accelerator = loss_mask(out)[:rows], trainer.accelerator
        return {"kl": token_kl(now, ref, mask, accelerator), "kl/samples": rows * accelerator.num_processes}


def keeps_reference(recipe: Recipe) -> bool:
    """Whether a run needs the weights it started from, also after a resume."""
    if recipe.train.method != "rl":
        return False
    return recipe.train.kl.beta > 0 or recipe.monitor.kl != "off"
