"""Samples a token from logits. One uniform number a row picks the token by inverting the cumulative distribution, so a
token with probability exactly 0 is never drawn. All operations have static shapes, as CUDA graphs require.

How this works: `sample_keys` gives each sample a key, `uniforms` a number u in [0, 1) for each of its steps. A step's logits
become weights w = exp(logit / T - max) and the token is the first i with w_1 + … + w_i > u x (w_1 + … + w_V) (inverse transform
sampling). The returned log-prob is log w_i - log sum w over all tokens, before truncation.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.rollout.engine import Request, SamplingSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


def sample(
    logits: Tensor, uniform: Tensor, settings: SamplingSettings, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One token a row, by inverting its cumulative distribution at one uniform number; no shape depends on a value.

    Args:
        logits: float32 [N, V].
        uniform: [N] in [0, 1); unused where decoding is greedy.
        settings: temperature, truncation, repetition penalty.
        seen: [N, V] bool, tokens the penalty falls on.

    Returns:
        token ids [N] int64, and [N] log-probs at the temperature, before truncation and penalty, as in the update.
    """
    import torch

    temperature = 1.0 if settings.greedy else settings.temperature
    scaled = logits if temperature == 1 else logits / temperature
    if settings.greedy:
        chosen = penalise(logits, seen, settings.repetition_penalty).argmax(-1)
        return chosen, torch.log_softmax(scaled, -1).gather(-1, chosen[:, None])[:, 0]
    if not settings.truncates:
        # one pass over the vocabulary gives token and log-prob; a second softmax would cost as much again
        top = scaled.amax(-1, keepdim=True)
        chosen, total = invert((scaled - top).exp_(), uniform)
        return chosen, (scaled.gather(-1, chosen[:, None]) - top - total.log())[:, 0]
    # penalty before temperature, as Hugging Face orders them
    choice = penalise(logits, seen, settings.repetition_penalty) / temperature
    choice = truncate(choice, settings)
    chosen, _ = invert((choice - choice.amax(-1, keepdim=True)).exp_(), uniform)
    return chosen, torch.log_softmax(scaled, -1).gather(-1, chosen[:, None])[:, 0]


def invert(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The first index whose cumulative weight exceeds uniform x total, [N] int64, and that total, [N, 1], of weights [N, V] and uniform
    numbers [N]."""
    import torch

    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    # Rounding may lift uniform x total to total itself, past every index that has weight.
    aim = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    chosen = torch.searchsorted(cumulative, aim, right=True)[:, 0]
    return chosen.clamp_(max=weights.shape[-1] - 1), total


def penalise(logits: Tensor, seen: Tensor | None, penalty: float) -> Tensor:
    """[N, V] logits with the penalty on seen tokens: positive ones are divided by it, negative ones multiplied, because
    dividing would make them likelier (Keskar et al., CTRL, arXiv 1909.05858, section 4.1).
    """
    import torch

    if seen is None or penalty == 1:
        return logits
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def truncate(scores: Tensor, settings: SamplingSettings) -> Tensor:
    """Truncation in Hugging Face's order: top-k, then top-p among the remaining tokens, then min-p.

    Args:
        scores: [N, V] logits over the temperature.

    Returns:
        [N, V], -inf at dropped tokens; the likeliest token always stays.
    """
    import torch

    if 0 < settings.top_k < scores.shape[-1]:
        worst = torch.topk(scores, settings.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < worst, -torch.inf)
    if settings.top_p < 1:
        ordered, order = torch.sort(scores)
        # sorted from the least likely: drop the tail of mass 1 - top_p
        dropped = ordered.softmax(-1).cumsum(-1) <= 1 - settings.top_p
        # the likeliest token always stays, even if it alone exceeds top_p
        dropped[:, -1] = False
        scores = scores.masked_fill(torch.zeros_like(dropped).scatter(1, order, dropped), -torch.inf)
    if settings.min_p > 0:
        likelihood = scores.softmax(-1)
        scores = scores.masked_fill(likelihood < settings.min_p * likelihood.amax(-1, keepdim=True), -torch.inf)
    return scores


# One uniform number for each (sample, step), from a counter instead of a stream, so it does not depend on which samples
# share a batch or in what order they finish. Duplicate prompts in one call differ by their occurrence number.

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, the increment of splitmix64 (Steele, Lea and Flood, OOPSLA 2014, section 4)."""


def sample_keys(requests: Sequence[Request], seed: int) -> list[int]:
    """A 64-bit key for every sample, in order; equal (seed, prompt and what is begun, occurrence, sample) give equal keys."""
    keys = []
    seen: Counter[bytes] = Counter()
    for request in requests:
        base = seed if request.seed is None else request.seed
        prompt = b",".join(str(token).encode() for token in request.ids)
        head = b"%d:%s" % (base, prompt)
        head += "".join(image.sha256 for image in request.images).encode()
        digest = hashlib.blake2b(b"%d:%s" % (seen[head], head), digest_size=8).digest()
        seen[head] += 1
        first = int.from_bytes(digest, "little")
        keys += [(first + GOLDEN * sample) & (2**64 - 1) for sample in range(request.n)]
    return keys


def uniforms(keys: Sequence[int], steps: int) -> NDArray[np.float32]:
    """[samples, steps] numbers in [0, 1) with 24 random bits each."""
    import numpy as np

    # mix the counter twice: keys may also differ by GOLDEN, and must not share numbers one step apart
    start = _mix(np.asarray(keys, dtype=np.uint64))
    counter = np.arange(1, steps + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = _mix(start[:, None] + counter[None, :]) >> np.uint64(40)
    # 24 bits fit the mantissa of float32, so that 1.0 cannot come out by rounding
    return (bits.astype(np.float32) * np.float32(2**-24)).astype(np.float32)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every input bit flips every output bit with probability one half."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
