"""Less memory between the two passes of an update: layers made again in the backward pass, and what is kept held by the host.

`full` keeps what goes into a layer and makes the layer again. `selective` keeps the output of its attention too, which takes
longest to make where rows are long. Neither changes a number: the same operations run on the same input.

How this works: `Keeping` replaces the forward of each layer by a call of torch's checkpoint. Around the second run stands `again`,
since what surrounded the first one is over by then. Attention is recognised as an operation of torch, below autograd: the
first run puts its outputs aside (`_Aside`), the second takes them from there (`_Taken`). `HostCopies` are torch's hooks for
what autograd keeps; outside of the checkpoints that is the input of each layer, and what is put aside goes the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from grpo_cli.rollout.fused.patches import Patch, patched

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.method import Recompute

LEAST_COPIED = 1 << 20
"""Bytes of a tensor that is worth a copy to the host."""
UNDER_WAY = 2
"""Copies to the host that may lag behind."""
ATTENTION = (
    ("aten", "_scaled_dot_product_cudnn_attention"),
    ("aten", "_scaled_dot_product_flash_attention"),
    ("aten", "_scaled_dot_product_efficient_attention"),
    ("aten", "_scaled_dot_product_flash_attention_for_cpu"),
    ("torch_attn", "_varlen_attn"),
)
"""Operations whose outputs `selective` keeps, where this torch has them."""

Again = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Keeping:
    """What lies in the device's memory between a forward and its backward pass."""

    recompute: Recompute = "no"
    offload: bool = False

    @contextmanager
    def of(self, base: nn.Module, again: Again = nullcontext, *, draws: bool = False) -> Iterator[None]:
        """While inside, forward passes of a model of transformers keep no more than this.

        Args:
            base: the model, without a wrapper of PEFT.
            again: what the second run of a layer needs around it; an autocast is restored without.
            draws: whether layers draw random numbers, as dropout does.
        """
        if not torch.is_grad_enabled():
            yield
            return
        with ExitStack() as stack:
            copies = HostCopies(base) if self.offload else None
            if copies is not None:
                stack.enter_context(saved_tensors_hooks(copies.pack, copies.unpack))
            if self.recompute != "no":
                contexts = partial(_contexts, again, self.recompute == "selective", copies)
                layers = [
                    Patch(one, "forward", _made_again(one.forward, contexts, draws)) for one in repeatable_layers(base)
                ]
                stack.enter_context(patched(layers))
            yield


def repeatable_layers(base: nn.Module) -> list[Any]:
    """The layers that can be made again: those that transformers marks so."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in base.modules() if isinstance(module, GradientCheckpointingLayer)]


def _made_again(own: Callable[..., Any], contexts: Callable[[], tuple[Any, Any]], draws: bool) -> Callable[..., Any]:
    def forward(*args: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return own(*args, **named)
        return checkpoint(own, *args, use_reentrant=False, preserve_rng_state=draws, context_fn=contexts, **named)

    return forward


def _contexts(again: Again, selective: bool, copies: HostCopies | None) -> tuple[Any, Any]:
    """What stands around the first run of a layer, and around the second."""
    if not selective:
        return nullcontext(), again()
    aside = _Aside(copies)
    return aside, _both(again(), _Taken(aside))


@contextmanager
def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with first, second:
        yield


@cache
def _attention() -> frozenset[Any]:
    found = (getattr(getattr(torch.ops, room), name, None) for room, name in ATTENTION)
    return frozenset(one.default for one in found if one is not None)


class _Aside(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts the outputs of attention aside."""

    def __init__(self, copies: HostCopies | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies = copies
        self.outputs: deque[Any] = deque()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _attention():
            # detached: autograd is about to attach its graph to the output itself
            self.outputs.append(tree_map_only(Tensor, lambda x: self._put(x.detach()), out))
        return out

    def _put(self, x: Tensor) -> HostCopy | Tensor:
        return x if self.copies is None else self.copies.pack(x)


class _Taken(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers attention with what was put aside, once."""

    def __init__(self, aside: _Aside) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.aside = aside

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _attention():
            return func(*args, **(kwargs or {}))
        kept = self.aside.outputs.popleft()
        return tree_map_only(HostCopy, lambda one: one.owner.unpack(one), kept)


@dataclass(frozen=True)
class HostCopy:
    """A tensor's numbers [...] in the host's memory, and what brings them back."""

    numbers: Tensor
    owner: HostCopies


class HostCopies:
    """Hooks for what autograd keeps of one pass: large tensors that are no weights wait in the host's memory."""

    def __init__(self, base: nn.Module) -> None:
        self.weights = {parameter.untyped_storage().data_ptr() for parameter in base.parameters()}
        self.device = next(base.parameters()).device
        self.side = _side(self.device.index) if self.device.type == "cuda" else None
        self.under_way: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def pack(self, x: Tensor) -> HostCopy | Tensor:
        """A copy of `x` [...], made while the device computes on; `x` itself where it is small, or a weight."""
        small = x.numel() * x.itemsize < LEAST_COPIED
        if small or x.device != self.device or x.untyped_storage().data_ptr() in self.weights:
            return x
        if self.side is None:
            return HostCopy(x.clone(), self)
        numbers = torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            numbers.copy_(x, non_blocking=True)
            self.under_way.append((x, self.side.record_event()))
        # held until its copy is over, and of few at once, so that the memory goes back to the stream that computes
        while len(self.under_way) > UNDER_WAY:
            torch.cuda.current_stream().wait_event(self.under_way.popleft()[1])
        return HostCopy(numbers, self)

    def unpack(self, kept: HostCopy | Tensor) -> Tensor:
        """The tensor [...] on its device again."""
        if isinstance(kept, Tensor):
            return kept
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
            self.under_way.clear()
        # on the stream that computes, so that its memory comes from there: a layer takes far longer than its copy
        return kept.numbers.to(self.device, non_blocking=True)


@cache
def _side(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
