"""Sentences about a person, each with the record that it holds as JSON.

A row is one of the wordings below with a name, an age, a trade and a town. The names of the held-out rows stand in no training row.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from grpo_cli.data.tasks import distinct

OPTIONS = ("size", "test_size", "seed")
NAMES = (
    "Ada", "Ben", "Carla", "Dario", "Edith", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin", "Luca", "Mona",
    "Nils", "Olga", "Pablo", "Rosa", "Samir", "Tilda", "Umar", "Vera", "Walter", "Yara", "Zeno",
)  # fmt: skip
HELD_OUT = 6
"""Names at the end of the list that only held-out rows have."""
TRADES = (
    "baker", "carpenter", "dentist", "driver", "farmer", "gardener", "nurse", "painter", "plumber", "pilot",
    "teacher", "welder",
)  # fmt: skip
TOWNS = ("Basel", "Cork", "Delft", "Espoo", "Ghent", "Graz", "Lille", "Lund", "Porto", "Riga", "Turin", "Zadar")
WORDINGS = (
    "{name} is {age} years old, works as a {trade} and lives in {town}.",
    "In {town} lives {name}, a {trade} of {age}.",
    "The {trade} {name} from {town} has turned {age}.",
    "{name}, {age}, moved to {town} to work as a {trade}.",
    "Ask {name} in {town}: a {trade} for years, now aged {age}.",
)


def rows(split: str, size: int = 400, test_size: int = 64, seed: int = 7) -> Iterator[dict[str, Any]]:
    """At most `size` training rows, or the `test_size` held-out ones; columns text and answer, which is JSON."""
    held_out = split == "test"
    draw = random.Random(f"{seed} {split}")
    names = NAMES[-HELD_OUT:] if held_out else NAMES[:-HELD_OUT]

    def record() -> tuple[str, dict[str, Any]]:
        one = {
            "name": draw.choice(names),
            "age": draw.randrange(19, 80),
            "trade": draw.choice(TRADES),
            "town": draw.choice(TOWNS),
        }
        text = draw.choice(WORDINGS).format(**one)
        return text, {"text": text, "answer": json.dumps(one)}

    return distinct(record, test_size if held_out else size)
