"""Where rows come from: a file, a pattern, a `save_to_disk` folder, `hub:NAME`, `tasks:NAME`, `run:NAME`,
`verifiers:ID`, or several of them mixed.

A source with splits gives its train split to `data.train` and its test split to `data.eval`, unless its
option `split` names another. `skip` and `limit` count rows of the source, before any mixing.

The rule of the mix: a row of a source of weight w stands w times in it (2 = twice, 0.5 = every second row,
0.3 = three of every ten), and the sources are spread evenly over each other, so that any stretch of the mix
has its proportions. Nothing is drawn at random.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from math import floor
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies

from grpo_cli.data.files import BrokenFile, Record, plain, read_file
from grpo_cli.data.run_samples import find_samples, run_rows
from grpo_cli.data.tasks import Split, task_rows
from grpo_cli.environments.taskset import listed
from grpo_cli.errors import DataError, Mistake, RecipeError, SetupError
from grpo_cli.text import path_of
from grpo_verifiers.names import near_or_known

# Data sets of the Hugging Face hub, read with the `datasets` library. A machine without a network gets a clear error.

OPTIONS = ("config", "split", "revision", "streaming")
SAVED = ("dataset_info.json", "dataset_dict.json")
"""Files that identify a folder written by `save_to_disk`."""


def hub_rows(name: str, split: str, options: Mapping[str, Any], key: str) -> Iterator[Record | BrokenFile]:
    """The rows of one split; options `config`, `split`, `revision`, `streaming` (true where the set is too large to keep).

    Raises:
        RecipeError: unknown option.
        SetupError: the hub cannot be reached and the set is not in the cache.
        DataError: no such data set, configuration or split.
    """
    for option in options:
        if option not in OPTIONS:
            raise RecipeError(f"unknown option `{option}` of `hub:{name}`{near_or_known(option, OPTIONS)}", place=key)
    unreached = SetupError(
        f"the hub cannot be reached for `{name}`",
        place=key,
        hint="get it on a machine with a network and name the file, or use tasks:NAME, which needs none",
    )
    if leave_hub() is not None and not _is_cached(name):
        raise unreached  # the library takes as long to import as the rest of `check` takes
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        rows = datasets.load_dataset(
            name,
            options.get("config"),
            split=str(options.get("split", split)),
            revision=options.get("revision"),
            streaming=bool(options.get("streaming", False)),
        )
    except DatasetNotFoundError as err:
        raise DataError(f"no data set `{name}` on the hub, or it is gated", place=key) from err
    except ValueError as err:  # unknown configuration or split: the library's message lists the known ones
        raise DataError(f"`hub:{name}`: {str(err).splitlines()[0]}", place=key) from err
    except OSError as err:  # ConnectionError, requests' and the hub's own errors are all OSErrors
        raise unreached from err
    return (_record(fields, f"hub:{name}:row {i}") for i, fields in enumerate(_undecoded(rows), start=1))


def _is_cached(name: str) -> bool:
    """Whether `datasets` may find this set without the hub: prepared, or as its files."""
    from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

    prepared = Path(os.environ.get("HF_DATASETS_CACHE", os.path.join(HF_HOME, "datasets")))
    folded = re.sub(r"[^a-z0-9]", "", name.lower())
    found = [*prepared.glob("*"), *Path(HF_HUB_CACHE).glob("datasets--*")]
    return any(re.sub(r"[^a-z0-9]", "", one.name.lower()).endswith(folded) for one in found)


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
        wanted = str(options.get("split", split))
        if wanted not in found:
            raise DataError(f"`{name}` has no split `{wanted}`{near_or_known(wanted, list(found))}", place=key)
        found = found[wanted]
    elif "split" in options:
        raise DataError(f"`{name}` is one split; leave the option `split` out", place=key)
    return (_record(fields, f"{name}:row {i}") for i, fields in enumerate(_undecoded(found), start=1))


def _undecoded(rows: Any) -> Any:
    """The data set with the bytes of its images in place of pictures."""
    from datasets import Image, List

    for name, kind in (rows.features or {}).items():
        if isinstance(kind, Image):
            rows = rows.cast_column(name, Image(decode=False))
        elif isinstance(kind, List) and isinstance(kind.feature, Image):
            rows = rows.cast_column(name, List(Image(decode=False)))
    return rows


def _record(fields: Mapping[str, Any], place: str) -> Record | BrokenFile:
    try:
        return Record({key: plain(value) for key, value in fields.items()}, place)
    except ValueError as err:
        return BrokenFile(place, str(err))


# Whether the Hugging Face hub answers. Its libraries retry a name that does not answer, which takes more than a minute
# for a model. Here the hub is tried once, for a few seconds; if it does not answer, its libraries use their cache.

HOME = "https://huggingface.co"
SECONDS = 4.0
"""Seconds to wait for an answer, including that of the name server."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
SET_OFFLINE = "this machine is told to stay offline"
UNREACHABLE = "the hub cannot be reached"

_found: dict[str, bool] = {}
"""For each address, whether it answered this process."""


def hub_is_there(seconds: float = SECONDS) -> bool:
    """Whether the hub, or the proxy in front of it, accepts a connection; each process tries once.

    Args:
        seconds: the longest wait.
    """
    home = os.environ.get("HF_ENDPOINT", HOME)
    proxies = getproxies()
    address = proxies.get(urlsplit(home).scheme) or proxies.get("all") or home
    if address in _found:
        return _found[address]
    parts = urlsplit(address if "//" in address else f"//{address}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    answered = threading.Event()

    def connect() -> None:
        with suppress(OSError):
            socket.create_connection((parts.hostname or "", port), seconds).close()
            answered.set()

    # in a thread: a name server that is not there makes the lookup hang, which no time limit of a socket ends
    trying = threading.Thread(target=connect, daemon=True)
    trying.start()
    trying.join(seconds)
    _found[address] = answered.is_set()
    return _found[address]


def why_offline() -> str | None:
    """Why this process does not use the hub, according to its environment; None where it uses it."""
    if not any(os.environ.get(name, "").lower() in ("1", "true", "on", "yes") for name in OFFLINE):
        return None
    return UNREACHABLE if False in _found.values() else SET_OFFLINE


def leave_hub() -> str | None:
    """If the hub does not answer, switch its libraries to their cache. Returns the reason, or None if the hub
    answers."""
    why = why_offline()
    if why is not None or hub_is_there():
        return why
    os.environ[OFFLINE[0]] = "1"
    for module in ("huggingface_hub.constants", "datasets.config"):
        if module in sys.modules:  # the library has already read the environment
            vars(sys.modules[module]).update(HF_HUB_OFFLINE=True, HF_DATASETS_OFFLINE=True)
    return UNREACHABLE


Which = Literal["train", "eval"]
_KINDS = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".ndjson", ".gz", ".zst")
_SCHEMES = ["tasks", "run", "hub", "verifiers"]
_KIND = re.compile(r"[A-Za-z_]\w+(?:\.\w+)*")
"""A hint for a name that looks like one of these, or like a Python module."""
_HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


class SourceLike(Protocol):
    """One source of a recipe (`recipe.Source`)."""

    source: str
    limit: int | None
    skip: int
    weight: float

    @property
    def options(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """The rows of one source, and the broken lines among the requested ones."""

    records: list[Record]
    broken: list[BrokenFile]


def load_source(source: SourceLike, which: Which, base: Path | None, key: str) -> LoadedSource:
    """The rows of one source after `skip` and `limit`; `key` is the recipe key that names it.

    Raises:
        RecipeError, DataError, SetupError: a source that cannot be read at all.
    """
    stream = _open(source.source, which, source.options, base, key)
    stop = None if source.limit is None else source.skip + source.limit
    records: list[Record] = []
    broken: list[BrokenFile] = []
    for item in islice(stream, source.skip, stop):
        if isinstance(item, Record):
            records.append(item)
        else:
            broken.append(item)
    if not records and not broken:
        why = f"has no row after `skip: {source.skip}`" if source.skip else "is empty"
        raise DataError(f"`{source.source}` {why}", place=key)
    return LoadedSource(records, broken)


def refuse_missing(source: SourceLike, base: Path | None, key: str) -> None:
    """Look for the file of a source, or its procedural task, without reading a row; the hub is not asked.

    Raises:
        RecipeError, DataError, SetupError: it is not there.
    """
    if not source.source.startswith(("hub:", "verifiers:")):
        _open(source.source, "train", source.options, base, key)  # rows are read as they are asked for


def mix(sources: Sequence[Sequence[Record]], weights: Sequence[float]) -> list[Record]:
    """The sources in one list, by the rule in this module's docstring. One source of weight 1 stays as it is."""
    placed = []
    for index, (records, weight) in enumerate(zip(sources, weights, strict=True)):
        upto = [floor(i * weight + 1e-9) for i in range(len(records) + 1)]
        copies = [r for i, r in enumerate(records) for _ in range(upto[i + 1] - upto[i])]
        placed += [((i + 0.5) / len(copies), index, i, record) for i, record in enumerate(copies)]
    placed.sort(key=lambda item: item[:3])
    return [record for *_, record in placed]


def broken_lines(broken: Sequence[BrokenFile]) -> DataError:
    """All broken lines as one error."""
    return DataError([Mistake(item.place, item.why) for item in broken])


def _open(
    name: str, which: Which, options: Mapping[str, Any], base: Path | None, key: str
) -> Iterator[Record | BrokenFile]:
    split: Split = "train" if which == "train" else "test"
    scheme, colon, rest = name.partition(":")
    if colon and scheme == "tasks":
        own = dict(options)
        chosen: Any = own.pop("split", split)
        if chosen not in ("train", "test"):
            raise RecipeError(f"option `split` of `{name}` is train or test, got {chosen!r}", place=key)
        split = chosen
        rows = task_rows(rest, split, own, key)
        return (Record(fields, f"{name}:{split} {i}") for i, fields in enumerate(rows, start=1))
    if colon and scheme == "run":
        return run_rows(rest, name, options, base, key)
    if colon and scheme == "hub":
        return hub_rows(rest, split, options, key)
    if colon and scheme == "verifiers":
        tasks = listed(rest, split, options, base, key)
        return (Record(fields, f"{name}:{split} {i}") for i, fields in enumerate(tasks, start=1))
    if colon and scheme in ("http", "https", "s3", "gs"):
        raise RecipeError(f"cannot read `{name}`; download it, or use hub:NAME", place=key)
    # Python code, which other programs accept as a source, and unknown kinds; an existing file of that name is a source
    path = scheme if colon and rest.isidentifier() else name
    is_kind = bool(colon) and _KIND.fullmatch(scheme) is not None
    if (path.endswith(".py") or is_kind) and not any(place.exists() for place in places_of(name, base)):
        mend = "let the function write its rows to a file once, one JSON object a line, and name that file"
        if path.endswith(".py"):
            raise RecipeError(f"`{name}` is Python code, and no function is asked for rows here", place=key, hint=mend)
        near = near_or_known(scheme, _SCHEMES)
        raise RecipeError(f"there is no source `{scheme}:`{near}", place=key, hint=f"is it a Python function? {mend}")
    if (folder := _saved_folder(name, base)) is not None:
        return saved_rows(folder, name, split, options, key)
    if options:
        raise RecipeError(f"unknown option `{next(iter(options))}` of the file `{name}`", place=key)
    if is_pattern(name) and not any(place.is_file() for place in places_of(name, base)):
        return chain.from_iterable(read_file(path, shown) for path, shown in matching(name, base, key))
    return read_file(find_file(name, base, key), name)


def places_of(name: str, base: Path | None) -> list[Path]:
    """Paths to try for a name: beside the recipe, then in the current folder."""
    path = path_of(name)
    return [path] if path.is_absolute() or base is None else list(dict.fromkeys([base / path, path]))


def _saved_folder(name: str, base: Path | None) -> Path | None:
    """The folder of that name where `save_to_disk` wrote it."""
    folder = next((place for place in places_of(name, base) if place.is_dir()), None)
    return folder if folder is not None and any((folder / file).is_file() for file in SAVED) else None


def files_of(name: str, base: Path | None, key: str) -> list[Path]:
    """The files that a source is read from; none of a procedural task or a set of the hub.

    Raises:
        DataError: they are not there.
    """
    scheme, colon, rest = name.partition(":")
    if colon and scheme == "run":
        return sorted(find_samples(rest, name, base, key).glob("step-*.jsonl"))
    if colon and scheme in ("tasks", "hub", "verifiers"):
        return []
    if (folder := _saved_folder(name, base)) is not None:
        return sorted(path for path in folder.rglob("*") if path.is_file())
    if is_pattern(name) and not any(place.is_file() for place in places_of(name, base)):
        return [path for path, _ in matching(name, base, key)]
    return [find_file(name, base, key)]


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern of files; a file with exactly that name takes precedence."""
    return any(sign in name for sign in "*?[")


def matching(name: str, base: Path | None, key: str) -> list[tuple[Path, str]]:
    """The files of a pattern, sorted by name (beside the recipe, else in the current folder), each with its name for
    messages.

    Raises:
        DataError: none.
    """
    for place, pattern in zip(places_of(name, base), (base, Path()), strict=False):
        found = sorted(Path(one) for one in glob.glob(str(place), recursive=True))
        files = [path for path in found if path.is_file()]
        if files:
            near = pattern or Path()
            return [(p, str(p.relative_to(near)) if p.is_relative_to(near) else str(p)) for p in files]
    raise DataError(f"no file matches `{name}`", place=key)


def find_file(name: str, base: Path | None, key: str) -> Path:
    """The file, looked for beside the recipe and then in the current folder.

    Raises:
        DataError: in neither.
    """
    path = path_of(name)
    places = places_of(name, base)
    for place in places:
        if place.is_file():
            return place
        if place.is_dir():
            inside = next((kind for kind in _KINDS if any(place.glob(f"*{kind}"))), "")
            raise DataError(
                f"`{name}` is a folder, not a file",
                place=key,
                hint=f"say `{name.rstrip('/')}/*{inside}` for its files" if inside else "",
            )
    near = sorted({f.name for place in places if place.parent.is_dir() for f in place.parent.iterdir() if f.is_file()})
    looked = " and ".join(f"`{place}`" for place in places) if len(places) > 1 else ""
    guess = near_or_known(path.name, near) if near else ""
    # `openai/gsm8k` is what other tools call a data set of the hub
    is_id = _HUB_ID.fullmatch(name) and path.suffix.lower() not in _KINDS
    hints = [f"looked for {looked}" if looked else "", f"a data set of the hub is `hub:{name}`" if is_id else ""]
    raise DataError(
        f"no file `{name}`{guess if guess.startswith('; did') else ''}",
        place=key,
        hint="; ".join(hint for hint in hints if hint),
    )
