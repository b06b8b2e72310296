"""Requests for a short text with one or two instructions about its form, by the names that IFEval gives them.

The topics of the held-out rows stand in no training row; every kind of instruction stands on both sides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from grpo_cli.data.tasks import distinct

OPTIONS = ("size", "test_size", "seed")
TOPICS = (
    "rain", "the sea", "a bicycle", "bread", "winter", "a lighthouse", "bees", "the moon", "a market", "trains",
    "an old map", "tea", "a garden", "snow", "a bridge", "owls", "a clock", "apples", "the desert", "chess",
    "a river", "shoes", "a violin", "clouds", "salt", "a harbour", "mice", "paper", "a kite", "autumn", "stars",
    "a mill", "horses", "candles", "a library", "wind",
)  # fmt: skip
HELD_OUT = 8
"""Topics at the end of the list that only held-out rows have."""
WORDS = ["blue", "quiet", "stone", "early", "bright", "silver", "slow", "warm"]


def instruction(draw: random.Random) -> tuple[str, str, dict[str, Any]]:
    """One instruction: its words, its name in IFEval, and its arguments."""
    word, n = draw.choice(WORDS), draw.randrange(2, 5)
    every: list[tuple[str, str, dict[str, Any]]] = [
        ("Write in lowercase letters only.", "change_case:english_lowercase", {}),
        ("Write in capital letters only.", "change_case:english_capital", {}),
        ("Use no commas.", "punctuation:no_comma", {}),
        (
            f"Use at most {10 * n} words.",
            "length_constraints:number_words",
            {"relation": "less than", "num_words": 10 * n + 1},
        ),
        (f'Use the word "{word}".', "keywords:existence", {"keywords": [word]}),
        ("Put the whole answer in double quotation marks.", "startend:quotation", {}),
        (
            f"Write exactly {n} bullet points that begin with *.",
            "detectable_format:number_bullet_lists",
            {"num_bullets": n},
        ),
    ]
    return draw.choice(every)


def rows(split: str, size: int = 400, test_size: int = 64, seed: int = 7) -> Iterator[dict[str, Any]]:
    """At most `size` training rows, or the `test_size` held-out ones; columns question, instruction_id_list, kwargs."""
    held_out = split == "test"
    draw = random.Random(f"{seed} {split}")
    topics = TOPICS[-HELD_OUT:] if held_out else TOPICS[:-HELD_OUT]

    def request() -> tuple[str, dict[str, Any]]:
        drawn = [instruction(draw) for _ in range(draw.randrange(1, 3))]
        # of one kind the last: two of them may contradict each other
        chosen = {name.split(":")[0]: (words, name, given) for words, name, given in drawn}.values()
        said = f"Write one or two sentences about {draw.choice(topics)}. " + " ".join(words for words, _, _ in chosen)
        names, given = [name for _, name, _ in chosen], [given for _, _, given in chosen]
        return said, {"question": said, "instruction_id_list": names, "kwargs": given}

    return distinct(request, test_size if held_out else size)
