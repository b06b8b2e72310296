"""Stop words while samples decode: the host reads what came since its last scan, and what ran on behind a text is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_cli.rollout.stop_words import StopWords

if TYPE_CHECKING:
    from grpo_cli.rollout.decoding.state import Outputs


class StopScanner:
    """How many tokens each stopped sample has, in `cut`; and what the running ones have said so far."""

    def __init__(self, words: StopWords) -> None:
        self.words = words
        self.cut: dict[int, int] = {}
        self._said: dict[int, list[int]] = {}

    def begin(self, sample: int, begun: Sequence[int]) -> None:
        """A sample starts, with these tokens already chosen."""
        self._said[sample] = list(begun)

    def scan(self, out: Outputs, samples: Sequence[int]) -> set[int]:
        """Those of the running `samples` that a text has ended since the last scan."""
        import torch

        index = torch.tensor(samples, device=out.tokens.device)
        looked = [len(self._said[sample]) for sample in samples]
        new = [count - n for count, n in zip(out.count[index].tolist(), looked, strict=True)]
        first = torch.tensor(looked, device=index.device)[:, None]
        columns = first + torch.arange(max(new), device=index.device)
        tokens = out.tokens[index[:, None], columns.clamp_(max=out.tokens.shape[1] - 1)].tolist()
        ended = set()
        for sample, before, n, some in zip(samples, looked, new, tokens, strict=True):
            said = self._said[sample]
            said += some[:n]
            count = self.words.cut(said, before)
            if count is not None:
                self.cut[sample] = count
                ended.add(sample)
        return ended
