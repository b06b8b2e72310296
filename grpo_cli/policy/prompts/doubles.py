"""What would stand twice in a prompt: rows that are templated already, or begin with the token that the tokenizer puts first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from grpo_cli.data.rows import Row

SEEN = 2000
"""Rows that are looked at; data sets are templated as a whole."""


def doubles(
    rows: Sequence[Row], special: Mapping[int, str], tags: set[int], encode: Callable[[Row], Sequence[int]]
) -> list[str]:
    """One sentence for each thing that stands twice.

    Args:
        special: the tokenizer's special tokens.
        tags: those of them that rows may hold as text, such as `<think>`.
        encode: the token ids of a row's prompt.
    """
    rows = rows[:SEEN]
    words = sorted(
        # longest first: an alternation takes the first that fits
        (text for token, text in special.items() if token not in tags and text),
        key=len,
        reverse=True,
    )
    if not words or not rows:
        return []
    pattern = re.compile("|".join(map(re.escape, words)))
    found: dict[str, list[Row]] = {}
    for row in rows:
        for message in row.messages or ():
            for word in set(pattern.findall(message["content"])):
                found.setdefault(word, []).append(row)
    said = [
        f"{len(held):,} of {len(rows):,} prompts hold `{word}` in their own words, and the chat template writes its"
        f" tokens too: they would stand twice, first {held[0].place}"
        for word, held in found.items()
    ]
    # a few do: what stands first comes from template and tokenizer, not from the row
    begun = [ids for ids in (encode(row) for row in rows[:10]) if len(ids) > 1 and ids[0] == ids[1]]
    if begun and begun[0][0] in special and not found:
        said.append(f"the first token `{special[begun[0][0]]}` stands twice: in the rows, and from the tokenizer")
    return said
