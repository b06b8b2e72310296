"""The model as the papers write it: a distribution over the next token, one prompt and one answer at a time, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM


@dataclass(frozen=True)
class Said:
    """Token ids of one prompt and of one answer to it (its end token included, if it came to it).

    `mask` is 0 at tokens of the answer that an environment put there; left out, all are the model's.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    mask: tuple[int, ...] = ()
    cut: bool = False
    """The budget of tokens ended it."""

    @property
    def own(self) -> list[int]:
        """Places of the tokens that the model generated."""
        return [t for t in range(len(self.answer)) if not self.mask or self.mask[t]]

    @property
    def turns(self) -> list[tuple[int, int]]:
        """[start, end) of each stretch of them."""
        own = self.own
        starts = [t for t in own if t - 1 not in own]
        ends = [t + 1 for t in own if t + 1 not in own]
        return list(zip(starts, ends, strict=True))


class Plain:
    """A float64 model with eager attention; `config` is the trained model's, the weights are given by name."""

    def __init__(self, config: Any, temperature: float = 1.0) -> None:
        made: Any = AutoModelForCausalLM.from_config(
            config,
            attn_implementation="eager",
            experts_implementation="eager",  # grouped products know no float64
        )
        self.model: Any = made.double().train()
        self.temperature = temperature

    def take(self, weights: Mapping[str, Tensor]) -> Plain:
        """The same model with these weights."""
        own = dict(self.model.named_parameters())
        assert set(own) == set(weights), f"other parameters: {sorted(set(own) ^ set(weights))[:4]}"
        with torch.no_grad():
            for name, value in weights.items():
                own[name].copy_(value)
        return self

    def tokens(self, said: Said) -> tuple[Tensor, Tensor]:
        """(T,) log-probs of the tokens that the model generated and (T,) entropies of the distributions they were drawn from,
        with graph."""
        ids = torch.tensor([[*said.prompt, *said.answer]])
        logits = self.model(input_ids=ids, use_cache=False).logits[0]
        logps = (logits[len(said.prompt) - 1 : -1] / self.temperature).log_softmax(-1)
        entropies = -(logps.exp() * logps).sum(-1)
        own = said.own
        return logps.gather(1, torch.tensor(said.answer)[:, None])[own, 0], entropies[own]

    @torch.no_grad()
    def energy(self, said: Said) -> list[float]:
        """Of each token of an answer, the squared length of the gradient of its log-prob on the logits, written out."""
        ids = torch.tensor([[*said.prompt, *said.answer]])
        logits = self.model(input_ids=ids, use_cache=False).logits[0]
        found = []
        for p, token in zip(
            (logits[len(said.prompt) - 1 : -1] / self.temperature).softmax(-1), said.answer, strict=True
        ):
            push = -p
            push[token] += 1
            found.append(float(push.square().sum()))
        return found

    @torch.no_grad()
    def logps(self, said: Sequence[Said]) -> list[list[float]]:
        """Log-probs of each answer's tokens."""
        return [self.tokens(one)[0].tolist() for one in said]

    def gradient(self, loss: Tensor) -> dict[str, Tensor]:
        """Of every parameter; zeros where the loss does not depend on it."""
        named = dict(self.model.named_parameters())
        if not loss.requires_grad:  # every ratio is clipped
            return {n: torch.zeros_like(p) for n, p in named.items()}
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named.items(), found, strict=True)}
