"""Any data set of reasoning-gym as `tasks:rg/NAME`. A row keeps the whole entry, so that reasoning-gym's scorer can
judge it.

reasoning-gym has no splits. The hash of a question decides whether it is in the test split (one in four), whatever the
seed and size. Train and test therefore never share a question, even if a data set has only eighty.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from grpo_cli.data.files import plain
from grpo_cli.errors import DataError, RecipeError, SetupError
from grpo_verifiers.names import near_or_known

TEST_SHARE = 4
SIZE = 1_000


def gym_rows(name: str, split: str, options: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """`size` rows (default 1,000) with the columns question, answer, metadata and `rg` (the data set's name).

    Raises:
        RecipeError: unknown data set or option, or options that do not go together.
        SetupError: reasoning-gym is not installed.
    """
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as err:
        raise SetupError(
            f"`tasks:rg/{name}` needs the package `reasoning-gym`", place=place, hint="pip install 'grpo-cli[tasks]'"
        ) from err
    if name not in DATASETS:
        raise RecipeError(f"unknown data set `tasks:rg/{name}`{near_or_known(name, sorted(DATASETS))}", place=place)
    known = [field.name for field in dataclasses.fields(DATASETS[name][1])]
    for option in options:
        if option not in known:
            raise RecipeError(
                f"unknown option `{option}` of `tasks:rg/{name}`{near_or_known(option, known)}", place=place
            )
    size = options.get("size", SIZE)
    if type(size) is not int or size < 1:
        raise RecipeError(f"option `size` of `tasks:rg/{name}` is a whole number from 1, got {size!r}", place=place)
    tries = 20 * TEST_SHARE * size + 1_000
    try:
        entries = create_dataset(name, **{"seed": 0, **options, "size": tries})
    except (AssertionError, TypeError, ValueError) as err:
        raise RecipeError(f"options of `tasks:rg/{name}`: {err}", place=place) from err
    return islice(_of_split(entries, name, split, size, tries, place), size)


def _of_split(
    entries: Sequence[Mapping[str, object]], name: str, split: str, size: int, tries: int, place: str
) -> Iterator[dict[str, Any]]:
    found = 0
    for index in range(tries):
        entry = plain(entries[index])
        digest = hashlib.sha256(entry["question"].encode("utf-8", "surrogatepass")).digest()
        if (digest[0] % TEST_SHARE == 0) == (split == "test"):
            found += 1
            yield {**entry, "rg": name}
    raise DataError(
        f"`tasks:rg/{name}` has only {found} of {size} rows for the {split} split after {tries} tries",
        place=place,
        hint="widen its options, or lower `size`",
    )
