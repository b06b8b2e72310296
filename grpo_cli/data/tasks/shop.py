"""Questions about the goods of a shop, each with a SQL query that answers it, judged on two databases.

A row is one of the wordings below with a kind of goods and a number. All rows are shuffled by `seed` and the first `test_size`
are held out: every wording stands on both sides, with other values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

OPTIONS = ("size", "test_size", "seed")
KINDS = ["bread", "cheese", "fish", "fruit", "meat", "sweets", "tea", "wine"]
NUMBERS = range(2, 14)
WORDINGS = {
    "the names of all {kind}": "name FROM goods WHERE kind = '{kind}'",
    "the names of {kind} that cost less than {n}": "name FROM goods WHERE kind = '{kind}' AND price < {n}",
    "the names of {kind} that cost more than {n}": "name FROM goods WHERE kind = '{kind}' AND price > {n}",
    "how many goods cost {n} or more": "COUNT(*) FROM goods WHERE price >= {n}",
    "how many kinds of {kind} there are": "COUNT(*) FROM goods WHERE kind = '{kind}'",
    "the highest price of any {kind}": "MAX(price) FROM goods WHERE kind = '{kind}'",
    "the sum of the stock of all {kind}": "SUM(stock) FROM goods WHERE kind = '{kind}'",
    "the names of goods with a stock below {n}": "name FROM goods WHERE stock < {n}",
    "the names and prices of {kind}": "name, price FROM goods WHERE kind = '{kind}'",
}
"""What is asked, and the query behind SELECT."""


def database(seed: int) -> str:
    """A script that makes the table `goods` (name, kind, price, stock), 40 rows drawn by `seed`."""
    draw = random.Random(seed)
    lines = [
        f"('{kind} {i}', '{kind}', {draw.randrange(1, 16)}, {draw.randrange(0, 16)})"
        for kind, i in product(KINDS, range(5))
    ]
    return (
        "CREATE TABLE goods (name TEXT, kind TEXT, price INTEGER, stock INTEGER);\nINSERT INTO goods VALUES "
        + ", ".join(lines)
        + ";"
    )


def rows(split: str, size: int = 300, test_size: int = 64, seed: int = 7) -> Iterator[dict[str, Any]]:
    """At most `size` training rows, or the `test_size` held-out ones; columns question, schema, answer."""
    asked = {
        words.format(kind=kind, n=n): query.format(kind=kind, n=n)
        for (words, query), kind, n in product(WORDINGS.items(), KINDS, NUMBERS)
    }
    every = sorted(asked.items())
    random.Random(seed).shuffle(every)
    schema = [database(seed), database(seed + 1)]
    made = ({"question": words, "schema": schema, "answer": f"SELECT {query}"} for words, query in every)
    return islice(made, test_size) if split == "test" else islice(made, test_size, test_size + size)
