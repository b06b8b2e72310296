"""Whether the packed update matches TRL's own on a model: measured on that model, with its weights and on this device.

How this works. `unfit` names settings and models that no packed row can compute. `difference` scores random rows twice, packed and each
alone through the model's own code, and compares log-probs and gradients; `replay_difference` does the same with a captured
pass. Each returns the reason why it may not be used, None where it may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from grpo_cli.policy.contract import CausalLM
from grpo_cli.policy.modes import causal_model, numerics, off_by_a_rounding
from grpo_cli.policy.policy import half_precision
from grpo_cli.rollout.fused.patches import Patch, patched
from grpo_cli.rollout.logprobs import SCALED_HEAD, draws_dropout
from grpo_cli.train.packed.attention import kernel_arguments
from grpo_cli.train.packed.graphs import Graphs
from grpo_cli.train.packed.layout import PackedShape, PackingPlan, plan, shape_for
from grpo_cli.train.packed.recompute import repeatable_layers
from grpo_cli.train.packed.score import ScoreNumerics, score

CLOSE = {torch.float64: 1e-6, torch.float32: 1e-4}
"""The largest relative error of log-probs and gradients; of half precision it is `HALF`, or twice what one rounding makes."""
HALF = 0.1
LENGTHS = ((5, 7, 1, 12), (9, 3, 12, 6))
"""Tokens of a prompt, then of its completions."""


def unfit(model: nn.Module, numbers: ScoreNumerics) -> str | None:
    """Why no packed row of this model can be computed; None where it may be tried."""
    base: Any = causal_model(model)
    parameter = next(base.parameters())
    config = getattr(base, "config", None)
    if parameter.is_cuda and not {"scale", "window_size"} <= kernel_arguments():
        return "this torch has no attention for rows of differing length (2.10 brought it)"
    if parameter.is_cuda and (numbers.autocast or parameter.dtype) not in (torch.float16, torch.bfloat16):
        return "its attention computes in half precision, and the run in float32"
    if parameter.is_cuda and half_precision(parameter.device) != torch.bfloat16:
        return "its attention has no kernels for this device"
    if draws_dropout(model):
        return "the model has dropout"
    if config is None or not getattr(base, "_supports_attention_backend", False):
        return "the model's attention cannot be replaced"
    text = config.get_text_config()
    if any(getattr(text, name, None) not in (None, 1.0) for name in SCALED_HEAD):
        return "the model scales its logits"
    if numbers.keeping.recompute != "no" and not repeatable_layers(base):
        return "its layers cannot be made again"
    return None


def difference(model: nn.Module, numbers: ScoreNumerics, patches: list[Patch], *, joined: bool = False) -> str | None:
    """How packed rows differ from each row alone through the model's own code, with `patches` in place; None where the
    numbers are the same. `joined`: of a row that is laid as one sequence."""
    base: Any = causal_model(model)
    batch = _Rows.random(base, most=1 if joined else None)

    def pass_() -> Found:
        laid = batch.laid()
        shape = shape_for(laid.need)
        return score(base, laid.fill(shape, batch.ids.device), numbers)[0], shape

    return _compared(model, numbers, patches, batch, pass_)


def replay_difference(
    model: nn.Module, numbers: ScoreNumerics, patches: list[Patch], *, joined: bool = False
) -> str | None:
    """The difference of a captured pass that is replayed."""
    base: Any = causal_model(model)
    batch, graphs = _Rows.random(base, most=1 if joined else None), Graphs(model, numbers)

    def pass_() -> Found:
        logps, _, shape = graphs.score(batch.laid())
        return logps, shape

    try:
        return _compared(model, numbers, patches, batch, pass_)
    finally:
        graphs.held.clear()  # passes and graphs refer to each other: only a collection of garbage would free them


Found = tuple[Tensor, PackedShape]


def _compared(
    model: nn.Module, numbers: ScoreNumerics, patches: list[Patch], batch: _Rows, packed_pass: Callable[[], Found]
) -> str | None:
    base: Any = causal_model(model)
    device = batch.ids.device
    # of both signs and unlike sizes: a gradient that is wrong by a factor, or in one row, shows
    pull = torch.linspace(-1, 1, batch.keep, device=device).expand(len(batch.ids), batch.keep) / batch.keep
    try:
        with patched(patches):
            logps, shape = packed_pass()
            packed = batch.laid().places(shape.targets, device).put(logps)
            grads = _gradients(packed, pull, model)
    # the model may be any model: any exception means that its rows cannot be packed
    except Exception as err:  # noqa: BLE001
        return f"{type(err).__name__}: {str(err).splitlines()[0][:100] if str(err) else ''}"
    expected = alone(base, batch.ids, batch.mask, batch.keep, numbers)
    wanted = _gradients(expected, pull, model)
    # how far one rounding at its embeddings moves the numbers of this model: a bound that is fixed would be too wide for
    # one model and too narrow for the next
    with off_by_a_rounding(base, numbers.autocast):
        nudged = alone(base, batch.ids, batch.mask, batch.keep, numbers)
        turned = _gradients(nudged, pull, model)
    bound = CLOSE.get(numbers.autocast or next(base.parameters()).dtype, HALF)
    counts = batch.mask[:, -batch.keep :].bool()
    error, noise = (_apart(x[counts], expected[counts], centred=True) for x in (packed, nudged))
    if not error <= max(bound, 2 * noise):
        return f"log-probs are off by {error:.2g} of their spread"
    errors, noises = ([_apart(a, b) for a, b in zip(x, wanted, strict=True)] for x in (grads, turned))
    worst, noise = max(errors), max(noises)
    return None if worst <= max(bound, 2 * noise) else f"a gradient is off by {worst:.2g} of its size"


def _gradients(values: Tensor, pull: Tensor, model: nn.Module) -> list[Tensor]:
    """The gradients of a few parameters, read from `.grad`, where a replay puts them; `.grad` is restored
    afterwards."""
    trained = [p for p in model.parameters() if p.requires_grad]
    before = [p.grad for p in trained]
    for parameter in trained:
        parameter.grad = None
    (values * pull).sum().backward()  # type: ignore[no-untyped-call]
    # a few of them, first, middle and last, those of a norm among them: all would take as much memory as the model
    picked = {id(p): p for p in (trained[0], *trained[len(trained) // 2 :][:10], trained[-1])}.values()
    found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in picked]
    for parameter, grad in zip(trained, before, strict=True):
        parameter.grad = grad
    return found


@dataclass(frozen=True)
class _Rows:
    """(B, S) ids and mask of a few groups, and how many of S are completion."""

    ids: Tensor
    mask: Tensor
    keep: int

    @classmethod
    def random(cls, base: CausalLM, most: int | None = None) -> _Rows:
        weight = base.get_input_embeddings().weight
        ids, mask, keep = rows(len(weight), weight.device)
        return cls(ids[:most], mask[:most], keep)

    def laid(self) -> PackingPlan:
        """Their layout."""
        found = plan(self.ids, self.mask, self.keep)
        assert found is not None
        return found


def rows(vocabulary: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """[B, S] random ids and mask of a few groups, and how many of S are completion."""
    generator = torch.Generator("cpu").manual_seed(0)
    lead, keep = max(r[0] for r in LENGTHS), max(max(r[1:]) for r in LENGTHS)
    ids, masks = [], []
    for prompt, *lengths in LENGTHS:
        before = torch.randint(vocabulary, (lead,), generator=generator, device="cpu")
        for length in lengths:
            rest = torch.randint(vocabulary, (keep,), generator=generator, device="cpu")
            ids.append(torch.cat([before, rest]))
            masks.append([0] * (lead - prompt) + [1] * (prompt + length) + [0] * (keep - length))
    return torch.stack(ids).to(device), torch.tensor(masks).to(device), keep


def alone(base: Any, ids: Tensor, mask: Tensor, keep: int, numbers: ScoreNumerics) -> Tensor:
    """[B, T] log-probs, each row without padding through the model's own forward pass, with their graph."""
    found = []
    for row, real in zip(ids, mask.bool(), strict=True):
        tokens, length = row[real], int(real[-keep:].sum())
        with numerics(base, numbers.autocast):
            states = base.base_model(input_ids=tokens[None], use_cache=False).last_hidden_state[0, -length - 1 : -1]
            logits = base.get_output_embeddings()(states)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / numbers.temperature
        logps = logits.log_softmax(-1).gather(1, tokens[-length:, None]).squeeze(1)
        found.append(torch.cat([logps, logps.new_zeros(keep - length)]))
    return torch.stack(found)


def _apart(a: Tensor, b: Tensor, centred: bool = False) -> float:
    wide = torch.promote_types(a.dtype, torch.float32)
    a, b = a.detach().to(wide), b.detach().to(wide)
    size = (b - b.mean() if centred else b).norm()
    return float((a - b).norm() / size.clamp(min=1e-12))
