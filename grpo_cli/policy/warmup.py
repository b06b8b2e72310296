"""Supervised cold start on demonstrations (R1's own order: a cold start, then RL). Works for any model and rows.

Matrices go through Muon where `muon_lr` is set (ten times fewer samples on small models made from nothing),
everything else through AdamW; both follow one cosine from `lr` down to `final_lr` times it.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from grpo_cli.errors import TrainingError
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.muon import Muon

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.data.images import RowImage
    from grpo_cli.policy.vision import Vision

IGNORED = -100  # label of tokens that are not learned: prompt and padding


@dataclass(frozen=True)
class WarmupText:
    """Token ids of one prompt and of the completion to imitate (end token included); `mask` is 1 where it is imitated, None
    is everywhere."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int] | None = None
    images: tuple[RowImage, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Phase:
    """One stretch of supervised steps; `batch` demonstrations a step, drawn with replacement."""

    steps: int
    lr: float
    muon_lr: float | None = None
    batch: int = 64
    lr_warmup_steps: int = 10
    final_lr: float = 0.1


def supervise(
    model: nn.Module,
    demonstrations: Sequence[WarmupText],
    phase: Phase,
    *,
    seed: int,
    pad_id: int,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
    vision: Vision | None = None,
) -> tuple[float, float]:
    """Train in place on completion tokens only (token mean); returns the loss of the last batch and the entropy on it, in nats.

    Raises:
        TrainingError: the loss is not finite.
    """
    draw = random.Random(seed)
    torch.manual_seed(seed)
    device = next(model.parameters()).device
    model.train()
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [
        p
        for name, p in trained
        # embeddings and head go through AdamW: they are tables by token, not maps of states
        if phase.muon_lr and p.ndim == 2 and "embed" not in name and "lm_head" not in name
    ]
    taken = {id(p) for p in matrices}
    others = [p for _, p in trained if id(p) not in taken]
    optimizers: list[tuple[torch.optim.Optimizer, float]] = []
    if matrices and phase.muon_lr:
        optimizers.append((Muon(matrices, phase.muon_lr), phase.muon_lr))
    if others:
        optimizers.append((torch.optim.AdamW(others, lr=phase.lr, betas=(0.9, 0.95), weight_decay=0.0), phase.lr))
    head = causal_model(model).get_output_embeddings()
    assert head is not None, "a causal language model has a head"
    loss_value = entropy = math.nan
    # on a GPU multiply float32 weights in TF32: that is precise enough to imitate text
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        for step in range(phase.steps):
            batch = [demonstrations[draw.randrange(len(demonstrations))] for _ in range(phase.batch)]
            ids, mask, labels = (part.to(device) for part in collate(batch, pad_id))
            factor = schedule(step, phase)
            for optimizer, base in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = base * factor
            wanted = F.pad(labels[:, 1:] != IGNORED, (0, 1))  # the last token predicts nothing
            # the head gets only the N states with a label: (N, V) logits in place of (B, T, V)
            handle = head.register_forward_pre_hook(
                lambda _, states, wanted=wanted: (states[0][wanted][None], *states[1:])
            )
            try:
                seen = {} if vision is None else vision.inputs(ids, [one.images for one in batch], scores=False)
                logits: torch.Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False, **seen).logits
            finally:
                handle.remove()
            # over the tokens of the batch: long completions weigh more
            loss = F.cross_entropy(logits[0].float(), labels[:, 1:][wanted[:, :-1]])
            loss_value = loss.item()
            # check before the backward pass: a NaN would destroy the weights, and the cache would store them
            if not math.isfinite(loss_value):
                raise TrainingError(f"warm-up step {step + 1}: the loss is {loss_value}", hint="lower `warmup.lr`")
            if step + 1 == phase.steps:
                with torch.no_grad():
                    logps = F.log_softmax(logits[0].float(), dim=-1)
                    entropy = float(-(logps.exp() * logps).sum(-1).mean())
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer, _ in optimizers:
                optimizer.step()
            model.zero_grad(set_to_none=True)
            on_step(step + 1, loss_value)
    finally:
        torch.set_float32_matmul_precision(before)
    return loss_value, entropy


def schedule(step: int, phase: Phase) -> float:
    """Linear warm-up, then a cosine from 1 to `final_lr`."""
    rise = min(1.0, (step + 1) / max(1, phase.lr_warmup_steps))
    return rise * (phase.final_lr + (1 - phase.final_lr) * 0.5 * (1 + math.cos(math.pi * step / phase.steps)))


def collate(batch: Sequence[WarmupText], pad_id: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Texts as one batch, padded on the right.

    The mask is built from lengths, not from the pad id: the pad token may also end turns inside the prompt.

    Args:
        batch: B texts, prompt and completion.
        pad_id: what fills a row up.

    Returns:
        ids, mask and labels, int64 [B, T] each; labels are `IGNORED` on prompts, padding and what is not imitated.
    """
    width = max(len(d.prompt_ids) + len(d.completion_ids) for d in batch)
    ids = torch.full((len(batch), width), pad_id)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(batch), width), IGNORED)
    for row, demo in enumerate(batch):
        start, end = len(demo.prompt_ids), len(demo.prompt_ids) + len(demo.completion_ids)
        ids[row, :end] = torch.tensor(demo.prompt_ids + demo.completion_ids)
        mask[row, :end] = 1
        labels[row, start:end] = torch.tensor(demo.completion_ids)
        if demo.mask is not None:
            labels[row, start:end][torch.tensor(demo.mask) == 0] = IGNORED
    return ids, mask, labels


def content_key(
    model_key: str, demonstrations: Sequence[Sequence[WarmupText]], phases: Sequence[Phase], seed: int
) -> str:
    """A hash of everything that decides the warmed-up weights, so that a second run may reuse them."""
    # include torch's version: kernels of another version change the last bits
    digest = hashlib.sha256()
    head = {"model": model_key, "seed": seed, "torch": torch.__version__, "phases": [asdict(p) for p in phases]}
    digest.update(json.dumps(head, sort_keys=True).encode())
    for part in demonstrations:
        for demo in part:
            parts = (demo.prompt_ids, demo.completion_ids)
            digest.update(repr(parts if demo.mask is None else (*parts, demo.mask)).encode())
            digest.update("".join(image.sha256 for image in demo.images).encode())
        # separate the phases: the same texts split differently are another training
        digest.update(b"|")
    return digest.hexdigest()[:24]
