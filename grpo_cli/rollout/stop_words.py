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
"""Additional tokens of the window, beyond one for each byte of the longest text: it may begin inside a character or
lose a blank."""


class StopWords:
    """Searches for stop texts in the decoded tokens, including special tokens. Most tokens cannot complete any of the
    texts, which is determined once for each token; only after the other tokens the end of the sample is decoded."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        """`texts`: at least one, none empty."""
        self.texts, self.tokenizer = tuple(texts), tokenizer
        # all suffixes of all texts: a token that completes a text starts with a suffix of it, or contains it
        self._ends = tuple(sorted({text[at:] for text in texts for at in range(len(text))}))
        self._window = max(len(text.encode("utf-8", "surrogatepass")) for text in texts) + SPARE
        self._may: dict[int, bool] = {}

    def end_with(self, token_ids: Sequence[int]) -> bool:
        """Whether the last of these tokens completes a text; the earlier ones are known not to."""
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
        """The number of tokens up to the one that completes a text; None if none does. The first `looked` are known not
        to."""
        # token by token: the first that completes a text ends the sample, whatever follows
        for count in range(looked + 1, len(token_ids) + 1):
            if self.end_with(token_ids[max(0, count - self._window) : count]):
                return count
        return None

    def _spelled(self, token_ids: Sequence[int]) -> str:
        import numpy as np

        return self.tokenizer.batch_decode([np.asarray(token_ids)], skip_special_tokens=False)[0]


def stop_words(texts: Sequence[str], tokenizer: Tokenizer | None) -> StopWords | None:
    """The rule that ends samples besides end tokens; None if there is none."""
    if not texts:
        return None
    assert tokenizer is not None, "texts are looked for in what a tokenizer spells"
    return StopWords(texts, tokenizer)


def finisher(stops: StopWords | None, end_ids: Collection[int]) -> Callable[[list[int], list[float]], Completion]:
    """Makes completions from the ids and log-probs of another library's engine, which may have continued after a stop
    text."""

    def finished(token_ids: list[int], logps: list[float]) -> Completion:
        count = stops.cut(token_ids) if stops is not None else None
        return completion(token_ids[:count], logps[:count], end_ids, is_stopped=count is not None)

    return finished


def completion(
    token_ids: list[int], logps: list[float], end_ids: Collection[int], *, is_stopped: bool = False
) -> Completion:
    """The completion is complete if a text or an end token ended it, else truncated."""
    is_whole = is_stopped or (bool(token_ids) and token_ids[-1] in end_ids)
    return Completion(token_ids, logps, "stop" if is_whole else "length")
