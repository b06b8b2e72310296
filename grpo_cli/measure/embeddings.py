"""What a policy makes of each row and its gold: where in its space the two lie, and how unlikely the gold is to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_cli.data.rows import Row
from grpo_cli.data.suspects import gold_of_row
from grpo_cli.policy.modes import causal_model, evaluating, numerics
from grpo_cli.policy.policy import Policy

TOKENS = 8192
"""Tokens, padding among them, that go through the model at once."""


@dataclass(frozen=True)
class Embeddings:
    """(N, H) mean last hidden states, float32 on the CPU, and the mean negative log-likelihood a token of each gold (nats);
    None for a row without a gold that is one text or number."""

    vectors_NH: Tensor
    nlls: list[float | None]


def embed(
    policy: Policy, rows: Sequence[Row], on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Embeddings:
    """Each row's prompt, with the gold behind it as if the policy had said it; cut where its context ends.

    Likelihoods are at temperature 1. One forward pass of all tokens; rows of like length go together.
    """
    texts = [_tokens(policy, row) for row in rows]
    # rows of like length together, and always in the same batches, so that the last bits are the same again
    order = sorted(range(len(rows)), key=lambda i: (len(texts[i][0]), i))
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    nlls: list[float | None] = [None] * len(rows)
    done = 0
    with evaluating(policy.model):
        for batch in _batches(order, [len(ids) for ids, _ in texts]):
            means, losses = _forward(policy, [texts[i] for i in batch])
            for i, mean, loss in zip(batch, means, losses, strict=True):
                vectors[i], nlls[i] = mean, loss
            done += len(batch)
            on_progress(done, len(rows))
    return Embeddings(torch.stack(vectors), nlls)


def _tokens(policy: Policy, row: Row) -> tuple[list[int], int]:
    """Ids of prompt and gold, and how many of them are the gold's."""
    prompt, gold = policy.encode(row), gold_of_row(row.fields)
    said = list(policy.tokenizer(gold, add_special_tokens=False).input_ids) if gold is not None else []
    # a gold that is cut still says where the row lies
    room = None if policy.context is None else max(0, policy.context - len(prompt))
    said = said[:room]
    return prompt + said, len(said)


def _batches(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Rows in this order, as many together as `TOKENS` allow; lengths never fall."""
    found: list[list[int]] = []
    for i in order:
        if found and (len(found[-1]) + 1) * lengths[i] <= TOKENS:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _forward(policy: Policy, texts: Sequence[tuple[Sequence[int], int]]) -> tuple[Tensor, list[float | None]]:
    """(B, H) means over the tokens of each text, and the loss of its gold tokens."""
    width = max(len(ids) for ids, _ in texts)
    # padded on the right, which a causal model never looks at
    ids_BS = torch.zeros(len(texts), width, dtype=torch.long)
    mask_BS = torch.zeros(len(texts), width, dtype=torch.long)
    gold_BS = torch.zeros(len(texts), width, dtype=torch.bool)
    for i, (ids, n) in enumerate(texts):
        ids_BS[i, : len(ids)], mask_BS[i, : len(ids)] = torch.tensor(ids), 1
        gold_BS[i, len(ids) - n : len(ids)] = True
    ids_BS, mask_BS, gold_BS = (part.to(policy.device) for part in (ids_BS, mask_BS, gold_BS))
    before_BS = F.pad(gold_BS[:, 1:], (0, 1))  # the states that predict a gold token
    seen: list[Tensor] = []

    def keep(_: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.append(states[0])
        # one state at least: a head may not take none
        wanted = before_BS if bool(before_BS.any()) else before_BS.new_ones(before_BS.shape)
        return (states[0][wanted][None], *states[1:])

    head = causal_model(policy.model).get_output_embeddings()
    assert head is not None, "a causal language model has a head"
    handle = head.register_forward_pre_hook(keep)
    try:
        with numerics(policy.model, policy.autocast):
            said: Any = policy.model(input_ids=ids_BS, attention_mask=mask_BS, use_cache=False)
    finally:
        handle.remove()
    weight_BS1 = mask_BS[..., None].float()
    means_BH = (seen[0].float() * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1)
    counts = gold_BS.sum(dim=1).tolist()
    if not any(counts):
        return means_BH.cpu(), [None] * len(texts)
    # in the same order: `before_BS` is `gold_BS` moved by one, and both are read row by row
    losses = F.cross_entropy(said.logits[0].float(), ids_BS[gold_BS], reduction="none")
    parts = torch.split(losses.cpu(), counts)
    return means_BH.cpu(), [float(part.mean()) if len(part) else None for part in parts]
