"""The KL between the policy and the model that the run started from: as a penalty on rewards, in the loss, and as a
monitor.

With `kl.beta` above 0, `add_reference` puts the reference's log-probs into the batch, and returns the KL penalty of
each reward if the recipe subtracts it there. With 0, TRL has no reference model and no KL at all: `KlWatch` scores a
few samples of every Nth step under the reference; other steps report no KL. B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from accelerate.utils import gather
from torch import Tensor, nn

from grpo_cli.algorithm.loss import Objective, answer_kl, loss_mask, token_kl
from grpo_cli.recipe.sections.course import KlMonitor
from grpo_cli.rollout.engine import Completion
from grpo_cli.rollout.logprobs import draws_dropout
from grpo_cli.train.log_probs import Batch, ScoringTrainer, padded, score

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Recipe


class Reference:
    """A frozen copy of a model's trainable parameters (all, or those of a LoRA adapter), swapped in for a forward pass.
    No second model is needed, and the reference includes a warm-up of the adapter. `offload` keeps the copy in main
    memory between uses."""

    def __init__(self, model: nn.Module, *, offload: bool = False) -> None:
        # frozen parameters are the same in both and need no copy
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.frozen = [p.detach().to("cpu" if offload else p.device, copy=True) for p in self.trained]

    @property
    def megabytes(self) -> float:
        """What the copy takes."""
        return sum(float(f.numel() * f.element_size()) for f in self.frozen) / 2**20

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Inside, the model is the reference. Afterwards it has its own tensors again, at the same addresses."""
        # exchange `.data` instead of copying: the optimizer, captured graphs and DDP's buckets refer to these tensors
        own = [p.data for p in self.trained]
        try:
            for p, f in zip(self.trained, self.frozen, strict=True):
                p.data = f.to(p.device, p.dtype)
            yield
        finally:
            for p, data in zip(self.trained, own, strict=True):
                p.data = data


class KlTrainer(ScoringTrainer, Protocol):
    """The members of the trainer used here in addition to those for scoring: TRL's metrics, then ours."""

    _metrics: dict[str, dict[str, list[float]]]

    objective: Objective


def add_reference(
    trainer: KlTrainer, reference: Reference, out: Batch, sampled: list[Completion], *, are_exact: bool
) -> Tensor | None:
    """Put the reference's log-probs into the batch.

    Args:
        trainer: the seam.
        reference: the weights of the start.
        out: the batch; gains `ref_per_token_logps` [B, T].
        sampled: this rank's samples.
        are_exact: whether the sampler's log-probs are exactly the policy's.

    Returns:
        [samples of all ranks], the penalty on each reward; None if the recipe puts none on rewards.
    """
    beta = trainer.objective.reward_beta
    whole = out
    if beta:
        # truncated answers may be left out of the loss by an empty mask, but they get a reward with the KL penalty: so
        # the KL is measured over every sampled token
        mask = out["completion_mask"]
        lengths = torch.tensor([len(c.token_ids) for c in sampled], device=mask.device)
        every = (torch.arange(mask.shape[1], device=mask.device) < lengths[:, None]).to(mask)
        if not torch.equal(every, mask):
            whole = {**out, "completion_mask": every}
    with reference.swapped_in():
        out["ref_per_token_logps"] = score(trainer, whole)
    if not beta:
        return None
    # the metric is averaged over tokens in the loss, the penalty is summed over the whole answer
    ref = out["ref_per_token_logps"]
    logps = sampled_logps(trainer, whole, sampled, are_exact=are_exact, again=whole is not out)
    trainer._metrics["train"]["kl"].append(token_kl(logps, ref, loss_mask(out), trainer.accelerator))
    off: Tensor = gather(answer_kl(logps, ref, loss_mask(whole)))
    return torch.as_tensor(beta * off)


def sampled_logps(
    trainer: KlTrainer, out: Batch, sampled: list[Completion], *, are_exact: bool, again: bool = False
) -> Tensor:
    """[B, T] log-probs of the policy that sampled. Those in the batch are used unless they are missing, not exact, or
    `again` asks for a new pass.
    """
    # TRL scores in training mode: with dropout its log-probs would be random
    logps: Tensor | None = out.get("old_per_token_logps")
    if logps is not None and not again and not draws_dropout(trainer.whole):
        return logps
    width = out["completion_ids"].shape[1]
    return padded(sampled, width, trainer.accelerator.device) if are_exact else score(trainer, out)


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
        # score both with the same code and rows, so that rounding errors cancel
        now = score(trainer, out, rows)
        with self.reference.swapped_in():
            ref = score(trainer, out, rows)
        mask, accelerator = loss_mask(out)[:rows], trainer.accelerator
        return {"kl": token_kl(now, ref, mask, accelerator), "kl/samples": rows * accelerator.num_processes}


def keeps_reference(recipe: Recipe) -> bool:
    """Whether a run needs its initial weights, also after a resume."""
    if not recipe.train.runs_grpo:
        return False
    if recipe.distil is not None and recipe.distil.weights == "base":
        return True
    return recipe.train.kl.beta > 0 or recipe.monitor.kl != "off"
