"""Texts that end a sample (`sample.stop`). One definition for every engine: a sample ends with the token that completes the
text, and that token stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from grpo_cli.rollout.engine import Completion

if TYPE_CHECKING:
    from collections.abc import Collection

    from grpo_cli.policy.contract import Tokenizer

SPARE = 4
"""Tokens looked at beyond one for each byte of the longest text: a window may begin inside a character or lose a blank."""


class StopWords:
    """Looked for in what the tokens spell, special tokens included. Most tokens cannot complete any of the texts, which is
    found out once for each; only behind the others the end of the sample is decoded."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        """`texts`: at least one, none empty."""
        self.texts, self.tokenizer = tuple(texts), tokenizer
        # every end of every text: a token that completes one begins with an end of it, or holds it whole
        self._ends = tuple(sorted({text[at:] for text in texts for at in range(len(text))}))
        self._window = max(len(text.encode("utf-8", "surrogatepass")) for text in texts) + SPARE
        self._may: dict[int, bool] = {}

    def end_with(self, token_ids: Sequence[int]) -> bool:
        """Whether the last of these tokens completes a text; none of those before it does."""
        token = token_ids[-1]
        if token not in self._may:
            piece = self._spelled([token])
            # part of a character, or a token that shows only next to others; with a blank, for some tokenizers drop it
            # at the start of what they decode
            self._may[token] = (
                not piece
                or "\ufffd" in piece
                or any(
                    form.startswith(self._ends) or any(text in form for text in self.texts)
                    for form in (piece, f" {piece}")
                )
            )
        if not self._may[token]:
            return False
        end = self._spelled(token_ids[-self._window :])
        return any(text in end for text in self.texts)

    def cut(self, token_ids: Sequence[int], looked: int = 0) -> int | None:
        """How many of the tokens there are up to the one that completes a text; None where none does. The first
        `looked` are known not to."""
        # token by token: the first that completes a text ends the sample, whatever the later ones spell
        for count in range(looked + 1, len(token_ids) + 1):
            if self.end_with(token_ids[max(0, count - self._window) : count]):
                return count
        return None

    def _spelled(self, token_ids: Sequence[int]) -> str:
        import numpy as np

        return self.tokenizer.batch_decode([np.asarray(token_ids)], skip_special_tokens=False)[0]


def stop_words(texts: Sequence[str], tokenizer: Tokenizer | None) -> StopWords | None:
    """What ends samples in addition to their end tokens; None where nothing does."""
    if not texts:
        return None
    assert tokenizer is not None, "texts are looked for in what a tokenizer spells"
    return StopWords(texts, tokenizer)


def finisher(stops: StopWords | None, end_ids: Collection[int]) -> Callable[[list[int], list[float]], Completion]:
    """From the ids and log-probs that an engine of others drew, which may have run on behind a text, to completions."""

    def finished(token_ids: list[int], logps: list[float]) -> Completion:
        count = stops.cut(token_ids) if stops is not None else None
        return completion(token_ids[:count], logps[:count], end_ids, is_stopped=count is not None)

    return finished


def completion(
    token_ids: list[int], logps: list[float], end_ids: Collection[int], *, is_stopped: bool = False
) -> Completion:
    """Whole where a text or an end token ended it, else cut."""
    is_whole = is_stopped or (bool(token_ids) and token_ids[-1] in end_ids)
    return Completion(token_ids, logps, "stop" if is_whole else "length")
