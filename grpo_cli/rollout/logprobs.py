"""Log-probs of sampled tokens, equal to TRL's scoring but computed from fewer tokens than a padded batch.

A prompt goes through the model once and its keys and values are shared by all its completions (gradients flow back
through them); completions run in chunks of like length; only tokens that count go through the output head. The numbers
are those of one padded forward pass up to the last bits, because each token still sees the same tokens at the same
positions. With logits z, log p(token) = z_token / T - logsumexp(z / T), and the entropy is -sum p log p. This is used
on a CPU, where time is proportional to the tokens; elsewhere TRL's own scoring is used.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.positions import positions_of
from grpo_cli.rollout.decoding.supports import supports

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM

CHUNKS, CHUNK_ROWS = 4, 16
"""The largest number of chunks, and the smallest number of rows in a chunk."""

HEAD_NUMBERS = 1 << 24
"""Most logits kept in memory; beyond that they are recomputed in the backward pass."""

SCALED_HEAD = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Names of configuration values that change logits after the head; models with one are left to TRL."""


@dataclass(frozen=True)
class Scores:
    """(B, T) log-probs and entropies of the completions' tokens, 0 where the mask is 0. Entropies carry no gradient."""

    logps_BT: Tensor
    entropies_BT: Tensor


def can_share(model: nn.Module) -> bool:
    """Whether the model can be scored this way; the engine's trial run decides."""
    base: Any = causal_model(model)
    if draws_dropout(model):
        return False  # samples of one prompt would share its dropout mask
    config = getattr(base, "config", None)
    if config is None or next(base.parameters()).device.type != "cpu":
        return False
    config = config.get_text_config()
    if any(getattr(config, name, None) not in (None, 1.0) for name in SCALED_HEAD):
        return False
    return supports(model) is None


def draws_dropout(model: nn.Module) -> bool:
    """Whether a forward pass in training mode is random."""
    config = getattr(causal_model(model), "config", None)
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()) or bool(
        config is not None and getattr(config.get_text_config(), "attention_dropout", 0.0)
    )


def score_shared(
    model: nn.Module, ids: Tensor, mask: Tensor, keep: int, temperature: float, *, absolute: bool = False
) -> Scores:
    """Log-probs and entropies of completions whose prompts go through the model once each, however many rows share them.

    Args:
        model: one without dropout (`draws_dropout`).
        ids: [B, S], prompts padded on the left, completions on the right.
        mask: [B, S], 1 at tokens.
        keep: the last columns, those of the completions: T.
        temperature: what logits are divided by.
        absolute: the model needs the position of each token (`policy.positions.needs_positions`).

    Returns:
        [B, T] each, 0 where no token stands, with their graph where gradients are on.
    """
    base: Any = causal_model(model)
    # compare the mask too: two prompts may differ only in their padding
    prompts, inverse = torch.unique(torch.stack([ids[:, :-keep], mask[:, :-keep]], dim=1), dim=0, return_inverse=True)
    completions, counts = ids[:, -keep:], mask[:, -keep:].bool()
    places = torch.arange(1, keep + 1, device=ids.device)
    lengths = (counts * places).amax(dim=1)
    # chunks of like length pad little; stable, so that the order of sums does not depend on the sort
    order = torch.argsort(lengths, stable=True)
    shared = _Prompts(base, prompts[:, 0], prompts[:, 1], absolute)
    hidden = [
        shared.hidden(inverse[rows], completions[rows], counts[rows], max(1, int(lengths[rows].max())))
        for rows in order.chunk(max(1, min(CHUNKS, len(order) // CHUNK_ROWS)))
    ]
    logps, entropies = _head(
        base.get_output_embeddings(), torch.cat(hidden), completions[order][counts[order]], temperature
    )
    # back to columns, 0 where no token stands, then back to the rows' own order
    at = counts[order]
    return Scores(
        *(found.new_zeros(at.shape).masked_scatter(at, found)[torch.argsort(order)] for found in (logps, entropies))
    )


class _Prompts:
    """Each prompt through the backbone once; `past` holds one pair of keys and values a layer."""

    def __init__(self, base: CausalLM, ids: Tensor, mask: Tensor, absolute: bool) -> None:
        self.backbone, self.mask, self.absolute = base.base_model, mask, absolute
        names = inspect.signature(self.backbone.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"
        cache = DynamicCache()
        # prompts are padded on the left: the last column is a token of every row, and predicts the first of
        # its completion
        self.last = self._run(ids, mask, cache)[:, -1]
        self.past = [(layer.keys, layer.values) for layer in cache.layers]

    def hidden(self, prompt_of: Tensor, completions: Tensor, counts: Tensor, width: int) -> Tensor:
        """(tokens that count, width of the model): the states that predict them, row by row."""
        states = self.last.index_select(0, prompt_of)[:, None]
        if width > 1:
            cache = DynamicCache()
            for number, (keys, values) in enumerate(self.past):
                # copies with a graph: the gradients of all samples add up in their prompt's keys and values
                cache.update(keys.index_select(0, prompt_of), values.index_select(0, prompt_of), number)
            mask = torch.cat([self.mask[prompt_of], counts[:, : width - 1].to(self.mask)], dim=1)
            states = torch.cat([states, self._run(completions[:, : width - 1], mask, cache)], dim=1)
        return states[counts[:, :width]]

    def _run(self, ids: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        arguments: dict[str, Any] = {self.cache_name: cache, "use_cache": True}
        if self.absolute:  # positions of the new tokens, after those in the cache
            arguments["position_ids"] = positions_of(mask)[:, -ids.shape[1] :]
        states: Tensor = self.backbone(input_ids=ids, attention_mask=mask, **arguments).last_hidden_state
        return states


def _head(head: nn.Module, states: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(N,) log-probs and entropies; logits beyond `HEAD_NUMBERS` are not kept for the backward pass."""

    def scored(part: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        # float32 before the division: in bfloat16 the softmax over a vocabulary loses the small probabilities
        logps = (head(part).float() / temperature).log_softmax(dim=-1)
        with torch.no_grad():
            entropies = -(logps.exp() * logps).sum(dim=-1)
        return logps.gather(1, wanted[:, None]).squeeze(1), entropies

    vocabulary: int = next(head.parameters()).shape[0]
    size = max(1, HEAD_NUMBERS // vocabulary)
    if len(states) <= size:
        return scored(states, labels)
    # in parts, because the logits of a batch are by far its largest tensor
    cuts = list(range(size, len(states), size))
    parts = zip(states.tensor_split(cuts), labels.tensor_split(cuts), strict=True)
    found = [checkpoint(scored, part, wanted, use_reentrant=False) for part, wanted in parts]
    return torch.cat([logps for logps, _ in found]), torch.cat([entropies for _, entropies in found])
