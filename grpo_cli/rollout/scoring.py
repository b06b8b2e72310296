"""Log-probs of given completions in one forward pass, without gradients; equal pairs of prompt and completion run once.

For methods that score texts which the policy did not draw: `train/cuts.py` scores answers behind the cuts of a thinking,
`train/distil.py` completions behind another prompt. `distributions` returns all words' log-probs.

On a CPU, where the time of a forward pass is proportional to its tokens, completions share the pass over their prompt.
On other devices, and for models that cannot share it, each pair is a row padded on the right; a causal model never sees
that padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from grpo_cli.policy.modes import causal_model, evaluating, numerics, unwrapped_forward
from grpo_cli.policy.positions import needs_positions
from grpo_cli.rollout.graph.continuous_batch import chunk_by_tokens

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and its completion."""

LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Most logits of one pass; a pass takes as many tokens as these are enough for, and at most `TOKENS`."""

TOKENS = 8192
CLOSE = 1e-3


class DraftScorer:
    """Scores with the model's current weights."""

    def __init__(self, model: nn.Module, autocast: torch.dtype | None = None) -> None:
        self.model, self.autocast = model, autocast
        self.base: Any = causal_model(model)
        self.absolute = needs_positions(model)
        self.shares_prompts = self._can_share()

    def __call__(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float
    ) -> list[list[float]]:
        """Each completion's log-probs after its prompt, at the temperature."""
        pairs = [(tuple(p), tuple(c)) for p, c in zip(prompts, completions, strict=True)]
        # equal pairs once, in the order they came: a set would order them by hash
        each = list(dict.fromkeys(pairs))
        found: dict[Pair, list[float]] = {}
        with numerics(self.model, self.autocast), evaluating(self.model), unwrapped_forward(self.model):
            if self.shares_prompts and each:
                found |= zip(each, self._shared(each, temperature), strict=True)
            else:
                for chunk in self._chunks([(len(prompt), len(ids)) for prompt, ids in each]):
                    some = [each[i] for i in chunk]
                    found |= zip(some, self._padded(some, temperature), strict=True)
        return [found[pair] for pair in pairs]

    def distributions(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float
    ) -> Iterator[tuple[int, Tensor]]:
        """Each completion's place and its [T, V] float32 log-probs of all words, one after the other."""
        import torch

        with numerics(self.model, self.autocast), evaluating(self.model), unwrapped_forward(self.model):
            for chunk in self._chunks([(len(p), len(c)) for p, c in zip(prompts, completions, strict=True)]):
                pairs = [(tuple(prompts[i]), tuple(completions[i])) for i in chunk]
                logits, _ = self._logits(pairs)
                parts = torch.split((logits / temperature).log_softmax(-1), [len(ids) for _, ids in pairs])
                yield from zip(chunk, parts, strict=True)

    def _chunks(self, sizes: Sequence[tuple[int, int]]) -> Iterable[Sequence[int]]:
        """The places of pairs of these sizes, as many together as a pass takes."""
        embeddings = self.base.get_input_embeddings()
        most = LOGITS.get(embeddings.weight.device.type, LOGITS["cpu"]) // embeddings.num_embeddings
        return chunk_by_tokens([prompt + ids for prompt, ids in sizes], min(TOKENS, most))

    def _can_share(self) -> bool:
        """Whether both ways agree, also where prompts differ in length."""
        from grpo_cli.rollout.logprobs import can_share

        if not can_share(self.model):
            return False
        some: list[Pair] = [((0, 1), (1, 0, 1)), ((1, 0, 1, 1, 0), (0, 1))]
        with numerics(self.model, self.autocast), evaluating(self.model):
            both = zip(self._shared(some, 1.0), self._padded(some, 1.0), strict=True)
        # bfloat16 has 8 bits of mantissa: two orders of the same sums differ in the third digit
        close = 2e-2 if self.autocast is not None else CLOSE
        return all(abs(a - b) < close for one, other in both for a, b in zip(one, other, strict=True))

    def _shared(self, pairs: Sequence[Pair], temperature: float) -> list[list[float]]:
        import torch

        from grpo_cli.rollout.logprobs import score_shared

        before, after = max(len(prompt) for prompt, _ in pairs), max(len(ids) for _, ids in pairs)
        # prompts end and completions begin in the same column, as `score_shared` wants them
        rows = [[0] * (before - len(p)) + [*p, *ids] + [0] * (after - len(ids)) for p, ids in pairs]
        real = [[before - len(p), len(p) + len(ids), after - len(ids)] for p, ids in pairs]
        mask = [[0] * left + [1] * inside + [0] * right for left, inside, right in real]
        found = score_shared(
            self.model, torch.tensor(rows), torch.tensor(mask), after, temperature, absolute=self.absolute
        )
        return [logps[: len(ids)] for logps, (_, ids) in zip(found.logps_BT.tolist(), pairs, strict=True)]

    def _padded(self, pairs: Sequence[Pair], temperature: float) -> list[list[float]]:
        logits, labels = self._logits(pairs)
        scaled = logits if temperature == 1 else logits / temperature
        logps = (scaled.gather(1, labels[:, None])[:, 0] - scaled.logsumexp(-1)).tolist()
        ends = list(accumulate(len(ids) for _, ids in pairs))
        return [logps[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _logits(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """[N, V] float32 logits where a token of a completion is predicted, pair by pair, and those [N] tokens."""
        import torch

        device = self.base.get_input_embeddings().weight.device
        longest = max(len(prompt) + len(ids) for prompt, ids in pairs) - 1  # the last token predicts nothing
        padded = [([*prompt, *ids][:-1] + [0] * longest)[:longest] for prompt, ids in pairs]
        rows = [row for row, (_, ids) in enumerate(pairs) for _ in ids]
        columns = [len(prompt) - 1 + place for prompt, ids in pairs for place in range(len(ids))]
        where = torch.tensor(rows, device=device), torch.tensor(columns, device=device)
        labels = torch.tensor([token for _, ids in pairs for token in ids], device=device)

        # the head runs on the states that predict a completion's token, not on prompts and padding: most of its cost
        def keep_wanted(_: nn.Module, states: tuple[Any, ...]) -> tuple[Any, ...]:
            return (states[0][where][None], *states[1:])

        handle = self.base.get_output_embeddings().register_forward_pre_hook(keep_wanted)
        try:
            inputs = torch.tensor(padded, device=device)
            return self.base(input_ids=inputs, use_cache=False).logits[0].float(), labels
        finally:
            handle.remove()
