"""Mixed inputs while sampling and while scoring (`sample.mix`, N-GRPO, arXiv 2606.10768).

How this works. At some steps of a sample, drawn with probability `rate`, what goes into the model behind the new token is no single
embedding but a mean over a few. With z the logits of the step, t the temperature, E the input embeddings:

    anchor v = argmax z,   C = v and the `neighbours` - 1 rows of E nearest to E[v] by cosine,   a = softmax of z / t over C
    the input of the next step = sum over c in C of a_c E[c]

The text gets the token that was sampled as ever, so that the gradient is that of the samples; with `written: anchor` it gets v, which
nobody drew, and the token is left out of the loss. Sampling stores (C, a) of each such token (`Mixture`), and every forward pass
that scores the sample uses the same: `MixedRows` replaces what the embedding module gives for these tokens. a is constant, E is live.
Only that module's output is replaced: an output head that shares its weights does not see it, and a scale after the lookup is in it.

Whether a step is mixed comes from a counter of its own, apart from the numbers that pick tokens. Special and banned tokens, rows beyond
the tokenizer and rows of zeros are in no C. N rows, V vocabulary, k members of C, B rows of a batch, T completion tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model
from grpo_cli.rollout.decoding.sampling import sample_keys, uniforms
from grpo_cli.rollout.engine import Completion, Mix, Mixture, Request, SamplingSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from grpo_cli.policy.contract import Tokenizer

OWN_STREAM = 0x6D6978
"""Added to the seed: the numbers that decide which steps are mixed are not those that pick tokens."""


def nearest(embeddings: Tensor, norms: Tensor, anchors: Tensor, allowed: Tensor, k: int) -> Tensor:
    """[N, k] rows of [V, D] `embeddings`: each of the [N] anchors, then the nearest of the [V] bool `allowed` ones by cosine; of equals
    the lower id. `norms` [V] are their lengths."""
    import torch

    likeness = (embeddings[anchors] @ embeddings.t()).float() / (norms[anchors, None] * norms).clamp(min=1e-12)
    likeness = likeness.masked_fill(~allowed, -torch.inf)
    likeness[torch.arange(len(anchors), device=anchors.device), anchors] = -torch.inf
    order = torch.sort(likeness, dim=-1, descending=True, stable=True).indices
    return torch.cat([anchors[:, None], order[:, : k - 1]], dim=1)


class Mixer:
    """The mixed steps of one `generate` call; samples are counted through its requests."""

    def __init__(
        self,
        model: nn.Module,
        settings: SamplingSettings,
        requests: Sequence[Request],
        sink: int,
        tokenizer: Tokenizer | None,
        never: Collection[int],
    ) -> None:
        """`sink` is the sample of rows that have none; `never`: end tokens, which are in no C, in addition to special ones."""
        import torch

        assert settings.mix is not None and settings.seed is not None
        self.mix: Mix = settings.mix
        self.temperature = settings.temperature
        base: Any = causal_model(model)
        self.embed: Any = base.get_input_embeddings()
        self.table: Tensor = self.embed.weight.detach()
        device = self.table.device
        self.norms = self.table.float().norm(dim=1)
        self.allowed = allowed_tokens(base, self.norms, tokenizer, never)
        keys = sample_keys(requests, settings.seed + OWN_STREAM)
        draws = torch.from_numpy(uniforms(keys, settings.max_tokens)).to(device)
        self.is_mixed = torch.zeros(sink + 1, draws.shape[1], dtype=torch.bool, device=device)
        self.is_mixed[: len(draws)] = draws < self.mix.rate
        shape = (*self.is_mixed.shape, self.mix.neighbours)
        self.members = torch.zeros(shape, dtype=torch.long, device=device)
        self.weights = torch.zeros(shape, device=device)
        self.over = torch.zeros(len(self.is_mixed), dtype=torch.bool, device=device)
        until = (
            []
            if tokenizer is None or not self.mix.until
            else tokenizer(self.mix.until, add_special_tokens=False).input_ids
        )
        self.until = torch.tensor(list(until), dtype=torch.long, device=device)

    def step(
        self, logits: Tensor, token: Tensor, logp: Tensor, samples: Tensor, steps: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """[n] tokens to write of [n] that were sampled, at these steps of these samples, and their log-probs; notes what goes in behind
        them.

        Args:
            logits: [n, V] float32.
            token: [n], sampled from them, with
            logp: [n] log-probs.
            samples: [n] numbers of samples.
            steps: [n], how many tokens each had.
            tokens: [samples, steps] ids of all samples so far.
        """
        import torch

        anchors = logits.argmax(-1)
        here = self.is_mixed[samples, steps] & ~self.over[samples] & self.allowed[anchors]
        rows = here.nonzero()[:, 0]
        if len(rows):
            members = nearest(self.table, self.norms, anchors[rows], self.allowed, self.mix.neighbours)
            weights = (logits[rows].gather(1, members) / self.temperature).float().softmax(-1)
            self.members[samples[rows], steps[rows]] = members
            self.weights[samples[rows], steps[rows]] = weights
            if self.mix.written == "anchor":
                token = torch.where(here, anchors, token)
                logp = (logits / self.temperature).log_softmax(-1).gather(-1, token[:, None])[:, 0]
        if width := len(self.until):
            # the token before this one and so on, as far as the text is long
            columns = steps[:, None] - torch.arange(width - 1, 0, -1, device=steps.device)
            before = tokens[samples[:, None], columns.clamp(min=0)].masked_fill(columns < 0, -1)
            ended = (torch.cat([before, token[:, None]], dim=1) == self.until).all(dim=1)
            self.over[samples[ended]] = True
        return token, logp

    @contextmanager
    def feeding(self, samples: Tensor, steps: Tensor) -> Iterator[None]:
        """Inside, the next pass over one token of each of these samples, [N] numbers, gets what was noted for the last of their [N]
        `steps` tokens."""
        last = (steps - 1).clamp(min=0)
        weights = self.weights[samples, last].masked_fill((steps < 1)[:, None], 0.0)
        with replaced(self.embed, self.members[samples, last][:, None], weights[:, None]):
            yield

    def mixtures(self, sample: int, first: int, end: int) -> tuple[Mixture, ...]:
        """Those of the tokens [first, end) of a sample, counted from `first`."""
        members, weights = self.members[sample, first:end], self.weights[sample, first:end]
        where = weights.sum(-1).nonzero()[:, 0]
        is_forced = self.mix.written == "anchor"
        found = zip(where.tolist(), members[where].tolist(), weights[where].tolist(), strict=True)
        return tuple(Mixture(at, tuple(c), tuple(a), is_forced) for at, c, a in found)


def allowed_tokens(base: Any, norms: Tensor, tokenizer: Tokenizer | None, never: Collection[int]) -> Tensor:
    """[V] bool, False at rows that stand for no ordinary token."""
    allowed = norms > 0
    head: Any = base.get_output_embeddings()
    special: list[int] = [*never, *getattr(getattr(head, "base_layer", head), "banned", ())]
    if tokenizer is not None:
        special += list(getattr(tokenizer, "all_special_ids", []))
        allowed[len(tokenizer) :] = False  # type: ignore[arg-type]
    allowed[[token for token in special if token < len(allowed)]] = False
    return allowed


@contextmanager
def replaced(embed: nn.Module, members_NTK: Tensor, weights_NTK: Tensor) -> Iterator[None]:
    """Inside, `embed` gives mixed embeddings where the (N, T, K) weights of as many members are not 0.

    Its rows are those of the tensors in order, over all its calls, and the last T columns of its input are theirs.

    Args:
        members_NTK: (N, T, K) ids of tokens.
        weights_NTK: (N, T, K) what each counts; 0 throughout where nothing is mixed.
    """
    offset = 0
    inner = False

    def mixed(_: nn.Module, inputs: tuple[Any, ...], out: Tensor) -> Tensor:
        nonlocal offset, inner
        if inner:
            return out
        rows = len(inputs[0])
        own = slice(offset, offset + rows)
        offset += rows
        weights, members = weights_NTK[own], members_NTK[own]
        row, column = (weights.sum(-1) > 0).nonzero(as_tuple=True)
        if not len(row):
            return out
        inner = True
        try:
            # through the module itself: a scale of its own is in it, and the weights get their gradient
            parts = embed(members[row, column])
        finally:
            inner = False
        first = (inputs[0].shape[1] if inputs[0].dim() > 1 else 1) - weights.shape[1]
        mean = (parts * weights[row, column][..., None].to(parts)).sum(dim=1)
        # a CPU's decode step embeds one token a row without an axis for it
        flat = out.view(rows, -1, out.shape[-1])
        return flat.index_put((row, column + first), mean).view_as(out)

    handle = embed.register_forward_hook(mixed)
    try:
        yield
    finally:
        handle.remove()


# The same in training: what a batch carries of its samples.


def batch_mixtures(completions: Sequence[Completion], width: int, k: int, device: torch.device) -> dict[str, Tensor]:
    """(B, width) members and weights of the tokens of these samples, a tensor for each of the k: so they are cut, padded, shuffled and
    left out as every other column of a batch."""
    import torch

    members = torch.zeros((k, len(completions), width), dtype=torch.long)
    weights = torch.zeros((k, len(completions), width))
    for row, completion in enumerate(completions):
        for one in completion.mixtures:
            members[:, row, one.at], weights[:, row, one.at] = torch.tensor(one.members), torch.tensor(one.weights)
    named = {f"mix_members_{i}": part for i, part in enumerate(members)}
    named |= {f"mix_weights_{i}": part for i, part in enumerate(weights)}
    return {name: part.to(device) for name, part in named.items()}


@contextmanager
def mixed_as_sampled(model: nn.Module, batch: dict[str, Any], rows: slice = slice(None)) -> Iterator[None]:
    """Inside, passes of `model` over these rows of a batch, prompts and completions together, see the inputs that the samples were drawn
    with; nothing changes for a batch without mixtures."""
    import torch

    k = sum(name.startswith("mix_members_") for name in batch)
    if not k:
        yield
        return
    members, weights = (
        torch.stack([batch[f"mix_{name}_{i}"][rows] for i in range(k)], dim=-1) for name in ("members", "weights")
    )
    with replaced(causal_model(model).get_input_embeddings(), members, weights):
        yield


def mix_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    """The share of tokens whose input was mixed, and how much of it was the anchor's, on average."""
    tokens, found = sum(len(c.token_ids) for c in completions), [one for c in completions for one in c.mixtures]
    if not found:
        return {"mix/share": 0.0}
    return {"mix/share": len(found) / tokens, "mix/anchor": sum(one.weights[0] for one in found) / len(found)}
