"""Log-probs of given completions in one forward pass, without gradients: padded on the right, which a causal model
never looks at, and with logits only where a token of a completion is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from grpo_cli.train.rollout.modelseat import causal_model, evaluating, numerics, unwrapped_forward
from grpo_cli.train.rollout.schedule import chunk_by_tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from grpo_cli.train.rollout.past import Draft

LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Most logits of one pass; a pass takes as many tokens as these are enough for, and at most `TOKENS`."""

TOKENS = 8192


def score(
    model: nn.Module,
    prompts: Sequence[list[int]],
    drafts: Sequence[Draft],
    temperature: float,
    autocast: torch.dtype | None = None,
) -> list[list[float]]:
    """Each draft's log-probs after its prompt, at the temperature; equal pairs are computed once."""
    pairs = [
        (tuple(prompt), tuple(draft.token_ids.tolist()))
        for prompt, draft in zip(prompts, drafts, strict=True)
    ]
    each = list(dict.fromkeys(pairs))
    base: Any = causal_model(model)
    kind = next(base.parameters()).device.type
    vocabulary: int = base.get_input_embeddings().num_embeddings
    budget = min(TOKENS, LOGITS.get(kind, LOGITS["cpu"]) // vocabulary)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
    with numerics(model, autocast), evaluating(model), unwrapped_forward(model):
        for chunk in chunk_by_tokens([len(prompt) + len(ids) for prompt, ids in each], budget):
            some = [each[i] for i in chunk]
            found |= zip(some, _pass(base, some, temperature), strict=True)
    return [found[pair] for pair in pairs]


def _pass(
    base: Any, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], temperature: float
) -> list[list[float]]:
    import torch

    device = next(base.parameters()).device
    longest = max(len(prompt) + len(ids) for prompt, ids in pairs) - 1  # nothing is predicted from the last
    inputs = torch.tensor(
        [((*prompt, *ids)[:-1] + (0,) * longest)[:longest] for prompt, ids in pairs], device=device
    )
    rows = [row for row, (_, ids) in enumerate(pairs) for _ in ids]
    columns = [len(prompt) - 1 + place for prompt, ids in pairs for place in range(len(ids))]
    where = torch.tensor(rows, device=device), torch.tensor(columns, device=device)
    labels = torch.tensor([token for _, ids in pairs for token in ids], device=device)

    def keep_wanted(_: nn.Module, states: tuple[Any, ...]) -> tuple[Any, ...]:
        return (states[0][where][None], *states[1:])

    handle = base.get_output_embeddings().register_forward_pre_hook(keep_wanted)
    try:
        logits: Tensor = base(input_ids=inputs, use_cache=False).logits[0].float()
    finally:
        handle.remove()
    scaled = logits if temperature == 1 else logits / temperature
    logps = (scaled.gather(1, labels[:, None])[:, 0] - scaled.logsumexp(-1)).tolist()
    ends = list(accumulate(len(ids) for _, ids in pairs))
    return [logps[start:end] for start, end in zip([0, *ends], ends, strict=False)]
