"""The critic: values of a batch, computed before any update, and an update of its own.

A value is read at the position that predicts its token (the last of the prompt for the first), never at the token itself.
The head predicts returns in units of their standard deviation, so that learning rate and clipping do not depend on the
scale of the reward.
Ranks hold the same critic: each adds the gradient of its own rows, and the sum is applied on all. B rows of this rank,
T completion tokens, S prompt and completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from grpo_cli.algorithm.gae import ReturnUnit, value_loss
from grpo_cli.errors import TrainingError
from grpo_cli.policy.loading.failures import numbers_only
from grpo_cli.policy.modes import causal_model, evaluating, numerics
from grpo_cli.policy.positions import positions_of

if TYPE_CHECKING:
    from grpo_cli.algorithm.gae import Moments
    from grpo_cli.recipe.sections.recipe import CriticSpec as Spec
    from grpo_cli.train.log_probs import Batch


FILE = "critic.pt"
LONGEST = 1.0
"""Clipping norm of the critic's gradient; the policy has its own."""


@dataclass(frozen=True)
class Numerics:
    """How the critic runs its passes: dtype, rows per pass, and the sum over ranks."""

    autocast: torch.dtype | None
    rows: int
    summed: Callable[[Tensor], Tensor]
    """A tensor, added over all ranks."""


@dataclass(frozen=True)
class ValueTarget:
    """The targets of a batch: (B, T) returns and the values before the update, both float64 and in the reward's unit,
    and a mask that is 1 where a token counts."""

    returns_BT: Tensor
    old_BT: Tensor
    mask_BT: Tensor


class Critic:
    """A backbone, a head in float32 that returns 0 at the start, and their optimizer."""

    def __init__(self, backbone: CriticLayers, model: nn.Module, spec: Spec, lr: float, numbers: Numerics) -> None:
        self.backbone, self.spec, self.numbers = backbone, spec, numbers
        embeddings = causal_model(model).get_input_embeddings().weight
        config: Any = causal_model(model).config.get_text_config()
        self.head = nn.Linear(int(config.hidden_size), 1, device=embeddings.device, dtype=torch.float32)
        # with values of 0 the first advantages are the returns, as without a critic; random values would be noise in
        # them
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.trained = [*backbone.trained, *self.head.parameters()]
        self.lr, self.unit = lr, ReturnUnit()
        self.optimizer = torch.optim.AdamW(self.trained, lr=lr, weight_decay=0.0)

    @property
    def mib(self) -> float:
        """Bytes of the critic's own weights and optimizer state in this process."""
        held: list[Tensor] = [*self.trained] + [
            value for state in self.optimizer.state.values() for value in state.values() if torch.is_tensor(value)
        ]
        return sum(t.numel() * t.element_size() for t in held) / 2**20

    @torch.no_grad()
    def values(self, out: Batch) -> Tensor:
        """[B, T + 1] float64 values of the states before each completion token and after the last column; no graph."""
        parts = torch.split(torch.arange(len(out["completion_ids"])), self.numbers.rows)
        return self.unit.back(torch.cat([self._head_values(out, rows) for rows in parts]))

    @torch.no_grad()
    def follow(self, returns: Moments) -> None:
        """Update the unit with the returns of a batch of all ranks, and rescale the head so that no value changes."""
        old, new = self.unit, self.unit.after(returns)
        if new == old:
            return
        # PopArt's "preserving outputs precisely"
        self.head.weight.mul_(old.std / new.std)
        self.head.bias.copy_((old.std * self.head.bias.double() + (old.mean - new.mean)) / new.std)
        self.unit = new

    def _head_values(self, out: Batch, rows: Tensor) -> Tensor:
        """[rows, T + 1] float32 outputs of the head, in its unit."""
        at = rows.to(out["completion_ids"].device)
        ids_BS = torch.cat([out["prompt_ids"][at], out["completion_ids"][at]], dim=1)
        mask_BS = torch.cat([out["prompt_mask"][at], out["completion_mask"][at]], dim=1)
        with numerics(self.head, self.numbers.autocast):
            states = self.backbone.hidden(ids_BS, mask_BS)
        # the last column of the prompt predicts the first token
        first = out["prompt_ids"].shape[1] - 1
        found: Tensor = self.head(states[:, first:].float())[..., 0]
        return found

    def fit(self, out: Batch, target: ValueTarget, places: Sequence[int], whole: int, seed: int) -> dict[str, float]:
        """Learn the returns. Returns metrics of the updates: means over tokens, with the loss in squared units of the
        head.

        Args:
            out: the rows of this rank, which are
            places: these of the `whole` batch.
            target: returns and earlier values of these rows.
            seed: of the order of rows, the same on all ranks.

        Raises:
            TrainingError: a gradient that is not finite; the weights were not touched.
        """
        seen = torch.zeros(3, device=target.mask_BT.device)  # loss, clipped tokens, tokens of this rank
        whole_old_BT, whole_returns_BT = self.unit.of(target.old_BT), self.unit.of(target.returns_BT)
        for rows in self._mini_batches(places, whole, seed):
            own = target.mask_BT[rows.to(target.mask_BT.device)].sum().float()
            # divide by the tokens of all ranks: the distribution of rows over ranks then does not matter
            tokens = self.numbers.summed(own.clone())
            if not float(tokens):
                continue
            for part in torch.split(rows, self.numbers.rows) if len(rows) else ():
                at = part.to(target.mask_BT.device)
                old_BT, returns_BT, mask_BT = whole_old_BT[at], whole_returns_BT[at], target.mask_BT[at]
                found = value_loss(self._head_values(out, part)[:, :-1], old_BT, returns_BT, mask_BT, self.spec.clip)
                (found.loss_BT.sum() / tokens).backward()  # type: ignore[no-untyped-call]
                seen[:2] += torch.stack([found.loss_BT.detach().sum(), found.clipped_BT.sum().float()])
            # this rank's sums; `summed` below adds those of all ranks
            seen[2] += own
            self._step()
        loss, clipped, counted = self.numbers.summed(seen).tolist()
        return {"critic/loss": loss / max(counted, 1.0), "critic/clip": clipped / max(counted, 1.0)}

    def _mini_batches(self, places: Sequence[int], whole: int, seed: int) -> Iterator[Tensor]:
        """This rank's rows in each mini-batch of the whole batch, epoch by epoch; a mini-batch may have none."""
        order, rows = torch.Generator().manual_seed(seed), torch.full((whole,), -1)
        rows[list(places)] = torch.arange(len(places))
        for _ in range(self.spec.epochs):
            for part in torch.randperm(whole, generator=order).chunk(self.spec.mini_batches):
                # sorted, so that a row's numerics do not depend on its place in the shuffle
                own = rows[part].sort().values
                yield own[own >= 0]

    def _step(self) -> None:
        """One update with the gradients of all ranks."""
        # every rank calls this, also one without rows in this mini-batch: the sum waits for all
        for p in self.trained:
            # summed, not averaged: each rank has divided by the tokens of all
            p.grad = self.numbers.summed(torch.zeros_like(p) if p.grad is None else p.grad)
        norm = float(nn.utils.clip_grad_norm_(self.trained, LONGEST))
        if not math.isfinite(norm):
            raise TrainingError(
                f"the gradient norm of the critic is {norm}; the weights were not touched",
                hint="lower `train.critic.lr`",
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def save(self, folder: Path) -> None:
        """Save weights, unit and optimizer into a folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        weights, unit = [p.detach().cpu() for p in self.trained], asdict(self.unit)
        held = {"weights": weights, "unit": unit, "optimizer": self.optimizer.state_dict()}
        torch.save(held, folder / FILE)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote.

        Raises:
            FileNotFoundError: the checkpoint is one of a run without a critic.
        """
        with numbers_only(folder / FILE):
            held: dict[str, Any] = torch.load(folder / FILE, map_location="cpu", weights_only=True)
        weights: Sequence[Tensor] = held["weights"]
        with torch.no_grad():
            for p, value in zip(self.trained, weights, strict=True):
                p.copy_(value)
        # a critic saved by a version without units predicts in the reward's unit, and gets a unit from the next batch
        self.unit = ReturnUnit(**held.get("unit", {}))
        self.optimizer.load_state_dict(held["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr  # a resumed run may use another learning rate


class CriticLayers:
    """The critic's network without an output head: a copy of the policy's layers, the policy's layers with a second
    adapter in place of the policy's, or the policy's current layers."""

    def __init__(self, base: Any, trained: list[nn.Parameter], swapped: dict[str, Tensor], *, absolute: bool) -> None:
        """`trained` are the parameters that the critic updates. `swapped` replace parameters of `base` during a call.
        `absolute`: the layers need position ids as an input."""
        self.base, self.trained, self.swapped, self.absolute = base, trained, swapped, absolute

    @classmethod
    def copied(cls, model: nn.Module, *, absolute: bool) -> CriticLayers:
        """A copy of the policy's current layers, all of them trained."""
        # without the head, which would be a vocabulary's worth of unused weights
        base = deepcopy(causal_model(model).base_model).eval().requires_grad_(True)
        return cls(base, list(base.parameters()), {}, absolute=absolute)

    @classmethod
    def adapter(cls, model: nn.Module, *, absolute: bool) -> CriticLayers:
        """The critic's own adapter on the policy's base, which is in memory once."""
        base = causal_model(model).base_model
        own = {name: nn.Parameter(p.detach().clone()) for name, p in base.named_parameters() if p.requires_grad}
        return cls(base, list(own.values()), dict[str, Tensor](own), absolute=absolute)

    @classmethod
    def policy(cls, model: nn.Module, *, absolute: bool) -> CriticLayers:
        """The policy's layers themselves: the critic is a head on them and does not update them."""
        return cls(causal_model(model).base_model, [], {}, absolute=absolute)

    def hidden(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """(B, S, hidden) states of the last layer. Dropout is off, so that the values before the update equal those
        inside it. There is no graph if nothing is trained."""
        inputs = {"input_ids": ids_BS, "attention_mask": mask_BS, "use_cache": False}
        inputs |= {"position_ids": positions_of(mask_BS)} if self.absolute else {}
        # `evaluating` switches gradients off, but an update of the critic needs them
        grad = torch.is_grad_enabled() and bool(self.trained)
        with evaluating(self.base), torch.set_grad_enabled(grad):
            found: Tensor = torch.func.functional_call(self.base, self.swapped, kwargs=inputs).last_hidden_state
        return found
