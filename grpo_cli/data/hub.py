"""Data sets of the Hugging Face hub, through the `datasets` library; a machine without a network gets one clear sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo_cli.data.files import BrokenFile, Record, plain
from grpo_cli.data.hub_access import leave_hub
from grpo_cli.errors import DataError, RecipeError, SetupError
from grpo_verifiers.names import near_or_known

OPTIONS = ("config", "split", "revision", "streaming")
SAVED = ("dataset_info.json", "dataset_dict.json")
"""Files by which a folder is known to be of `save_to_disk`."""


def hub_rows(name: str, split: str, options: Mapping[str, Any], key: str) -> Iterator[Record | BrokenFile]:
    """The rows of one split; options `config`, `split`, `revision`, `streaming` (true where the set is too large to keep).

    Raises:
        RecipeError: unknown option.
        SetupError: the hub cannot be reached and the set is not in the cache.
        DataError: no such data set, configuration or split.
    """
    for option in options:
        if option not in OPTIONS:
            raise RecipeError(
                f"unknown option `{option}` of `hub:{name}`{near_or_known(option, OPTIONS)}", place=key
            )
    rows = _load(name, str(options.get("split", split)), options, key)
    return (_record(fields, f"hub:{name}:row {i}") for i, fields in enumerate(rows, start=1))


def saved_rows(
    folder: Path, name: str, split: str, options: Mapping[str, Any], key: str
) -> Iterator[Record | BrokenFile]:
    """The rows of a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote; option `split`.

    Raises:
        RecipeError: unknown option.
        DataError: the folder cannot be read, or has no such split.
    """
    for option in options:
        if option != "split":
            raise RecipeError(f"unknown option `{option}` of the folder `{name}`; known: split", place=key)
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as err:
        raise DataError(f"`{name}` cannot be read: {str(err).splitlines()[0]}", place=key) from err
    if isinstance(found, datasets.DatasetDict):
        asked = str(options.get("split", split))
        if asked not in found:
            raise DataError(f"`{name}` has no split `{asked}`{near_or_known(asked, list(found))}", place=key)
        found = found[asked]
    elif "split" in options:
        raise DataError(f"`{name}` is one split; leave the option `split` out", place=key)
    return (_record(fields, f"{name}:row {i}") for i, fields in enumerate(found, start=1))


def _record(fields: Mapping[str, Any], place: str) -> Record | BrokenFile:
    try:
        return Record({key: plain(value) for key, value in fields.items()}, place)
    except ValueError as err:
        return BrokenFile(place, str(err))


def _load(name: str, split: str, options: Mapping[str, Any], key: str) -> Any:
    leave_hub()
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        return datasets.load_dataset(
            name,
            options.get("config"),
            split=split,
            revision=options.get("revision"),
            streaming=bool(options.get("streaming", False)),
        )
    except DatasetNotFoundError as err:
        raise DataError(f"no data set `{name}` on the hub, or it is gated", place=key) from err
    except ValueError as err:  # unknown configuration or split: the library's message lists the known ones
        raise DataError(f"`hub:{name}`: {str(err).splitlines()[0]}", place=key) from err
    except OSError as err:  # ConnectionError, requests' and the hub's own errors are all OSErrors
        raise SetupError(
            f"the hub cannot be reached for `{name}`",
            place=key,
            hint="get it on a machine with a network and name the file, or use tasks:NAME, which needs none",
        ) from err
