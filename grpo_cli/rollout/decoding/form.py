"""What the attention of a layer has beside the softmax of scaled products: a window (Mistral, Gemma), a cap on its scores
(Gemma 2), a learned score that takes likelihood from the columns (GPT-OSS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class AttentionForm:
    """`window`: a token sees itself and the `window` - 1 before it; `cap`: scores are cap x tanh(score / cap);
    `sinks` [heads]: a score beside those of the columns that mixes in nothing."""

    window: int | None = None
    cap: float | None = None
    sinks: Tensor | None = None

    @classmethod
    def of(cls, extras: Mapping[str, object]) -> AttentionForm:
        """From what a layer hands to its attention function, by the names that transformers uses."""
        window, cap, sinks = (extras.get(name) for name in ("sliding_window", "softcap", "s_aux"))
        if window is None and cap is None and sinks is None:
            return PLAIN
        return cls(cast("int | None", window), cast("float | None", cap), cast("Tensor | None", sinks))

    @property
    def is_plain(self) -> bool:
        """Whether it is the softmax alone."""
        return self.window is None and self.cap is None and self.sinks is None

    def seen(self, tokens: int, device: torch.device) -> Tensor:
        """[tokens, tokens], true where the row's token sees the column's."""
        import torch

        row, column = torch.arange(tokens, device=device)[:, None], torch.arange(tokens, device=device)
        seen = column <= row
        return seen if self.window is None else seen & (column > row - self.window)

    def capped(self, scores: Tensor) -> Tensor:
        """Scores [..., heads, tokens, columns] under the cap, in their own type (Gemma 2, arXiv 2408.00118, section 2)."""
        return scores if self.cap is None else (scores / self.cap).tanh() * self.cap

    def likelihood(self, scores: Tensor) -> Tensor:
        """Softmax over the columns, in float32.

        Args:
            scores: [..., heads, tokens, columns], scaled, capped, and -inf where a token does not see a column.

        Returns:
            float32 of the same shape; with sinks a row sums to less than 1.
        """
        import torch

        if self.sinks is None:
            return torch.softmax(scores, -1, dtype=torch.float32)
        # one more column that has likelihood and no value, dropped after the softmax
        sinks = self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sinks], -1), -1, dtype=torch.float32)[..., :-1]


PLAIN = AttentionForm()
