"""Digests of the files behind a recipe: a resume must find the contents that the run began with.

`run.json` keeps them under `contents`, in three parts that become known one after the other:

    files    by key of the recipe: code, models, sources of rows that are read later, and what keys that take anything name
    rows     the training and the held-out rows as they were read, with their prompts
    prompts  the token ids of the first prompts: a chat template may write the date, or be another one
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_cli.data.rows import Row, Split
from grpo_cli.data.sources import Which, files_of, places_of
from grpo_cli.errors import DataError, Mistake, RecipeError
from grpo_cli.policy.loading.files import model_files
from grpo_cli.recipe.named import NamedThing, named_by
from grpo_cli.recipe.reading.dump import stage_data
from grpo_cli.recipe.sections.fields import Names, written
from grpo_cli.recipe.sections.inputs import Model
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.sections.rewards import KINDS
from grpo_cli.resilience.code_files import files_of_code
from grpo_cli.run.folder import RunFolder
from grpo_cli.text import real_path

CONTENTS = "contents"
Digests = Mapping[str, Mapping[str, str]]
"""By key of the recipe and by file: a digest, or a version."""
WHOLE = 4 << 20
"""Files of weights above this many bytes are known by their size, beginning and end."""
OF_A_MODEL = (".json", ".safetensors", ".bin", ".model", ".jinja", ".txt", ".gguf", ".py")
"""Endings of the files that a model is loaded from; what `grpo eval` writes to the same folder is not one of them."""
DIGITS = 16
OWN = ("grpo_cli", "grpo_verifiers")


def files_behind(recipe: Recipe, base: Path | None) -> dict[str, dict[str, str]]:
    """The digests of the files that a recipe and its stages name; training and held-out rows are left to `rows_read`,
    which sees those that are taken, but where stages will read them later."""
    found = _of_recipe(recipe, base, later=recipe.stages is not None)
    for at, stage in enumerate(recipe.stages or ()):
        own = _of_recipe(Recipe.model_validate(stage_data(recipe, at)), base, later=True)
        found |= {f"stages.{stage.name}.{key}": files for key, files in own.items() if found.get(key) != files}
    return found


def rows_read(splits: Mapping[Which, Split], recipe: Recipe) -> dict[str, dict[str, str]]:
    """The digest of each split's rows by their source, in order and with all their columns; how sources are mixed is the
    recipe's."""
    found: dict[str, dict[str, str]] = {}
    for which, split in splits.items():
        sources = recipe.data.train if which == "train" else recipe.data.eval
        some = sources if isinstance(sources, list) else [sources]
        kept = {one.source: written(one.source) for one in some if one is not None}
        names = sorted(kept, key=len, reverse=True)
        rows: dict[str, list[Row]] = {}
        for row in split.rows:
            # the file that matched, where the source is a pattern
            own = next((name for name in names if row.place.startswith(name)), row.place.rpartition(":")[0])
            rows.setdefault(own or ", ".join(names), []).append(row)
        found[f"data.{which}"] = {}
        for name, of_one in rows.items():
            digest = hashlib.sha256()
            for row in of_one:
                parts = [row.id, row.prompt, row.messages, row.tools, row.prefill, row.fields]
                parts += [image.sha256 for image in row.images]
                line = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
                digest.update(line.encode("utf-8", "surrogatepass"))
            shown = f"{digest.hexdigest()[:DIGITS]} of {len(of_one):,} rows"
            found[f"data.{which}"][kept.get(name, name)] = shown
    return found


def prompts_read(token_ids: Sequence[Sequence[int]]) -> dict[str, dict[str, str]]:
    """The digest of prompts."""
    return {"prompt": {"the first prompt": _digest_of(json.dumps([list(ids) for ids in token_ids]).encode())}}


def refuse_changed(run: RunFolder, part: str, now: Digests, *, hint: str = "") -> None:
    """Compare one part with that at the beginning of the run; a run that did not record it passes.

    Raises:
        RecipeError: every file that differs, with its key.
    """
    if mistakes := changes(run, part, now):
        go_on = f"`--resume {run.path} --resume-anyway` goes on with what is there now"
        raise RecipeError(mistakes, hint=f"{hint}\n      {go_on}" if hint else go_on)


def changes(run: RunFolder, part: str, now: Digests) -> list[Mistake]:
    """The files that differ from those the run began with; keys that only one side has belong to another version."""
    before: Digests = run.manifest().get(CONTENTS, {}).get(part, {})
    found = []
    for key in before.keys() & now.keys():
        if sorted(before[key].values()) == sorted(now[key].values()):
            continue  # the same files, perhaps in another place
        for file in sorted(before[key].keys() | now[key].keys()):
            old, new = before[key].get(file), now[key].get(file)
            if old is None or new is None:
                what = "was not there when the run began" if old is None else "is gone"
            else:
                short = [text[:8] + text[DIGITS:] for text in (old, new)]
                what = f"was changed since the run began: {short[0]} then, {short[1]} now"
            if old != new:
                found.append(Mistake(f"`{key}`", f"`{file}` {what}"))
    return found


def _of_recipe(recipe: Recipe, base: Path | None, *, later: bool) -> dict[str, dict[str, str]]:
    stages = [f"run:{stage.name}" for stage in recipe.stages or ()]
    found = {}
    for one in named_by(recipe):
        is_read_now = one.key.startswith(("data.train", "data.eval")) and not later
        if one.what is Names.ROWS and (is_read_now or one.text in stages):
            continue
        # what is not there yet (a model that will be downloaded) is not compared; what is gone raises where it is read
        if files := _digests(one, recipe, base):
            found[one.key] = files
    world = recipe.environment
    for name, words in {} if world is None else world.commands.items():
        if name == "interpreter":
            continue  # another build of the same Python is no other world
        key = f"environment.{name}"
        code = [NamedThing(key, Names.CODE, f"{word}:main") for word in words if word.endswith(".py")]
        named = [*code, *(NamedThing(key, Names.FILE, word) for word in words if not word.endswith(".py"))]
        if files := {name: digest for one in named for name, digest in _digests(one, recipe, base).items()}:
            found[key] = files
    return found


def _digests(one: NamedThing, recipe: Recipe, base: Path | None) -> dict[str, str]:
    if one.what is Names.MODEL:
        # a cheap digest of weights: all of small files, size and both ends of large ones; of the hub's cache the commit
        name, revision = one.text, recipe.model.revision if one.key == "model.path" else None
        place = next((near for near in places_of(name, base) if ":" not in name and near.exists()), Path(name))
        if place.is_dir():
            inside = (path for path in sorted(place.iterdir()) if path.suffix in OF_A_MODEL and path.is_file())
            return {path.name: _digest(path, ends=True) for path in inside}
        if ":" not in name and _is_file(place):
            return {place.name: _digest(place, ends=True)}
        config = model_files(Model(path=name, revision=revision)).path("config.json")
        return {} if config is None else {name: config.parent.name[:DIGITS]}
    if one.what is Names.KIND:
        module = KINDS[one.text].partition(":")[0]
        if module.partition(".")[0] in OWN:
            return {}
        files, version = files_of_code(module, [])
    elif one.what is Names.CODE:
        # where the worker of a function looks for it: in the folder of the recipe, then in the working directory
        near = base or Path()
        files, version = files_of_code(one.text, [*(near / folder for folder in one.folders), near, Path.cwd()])
    elif one.what is Names.ROWS:
        try:
            files, version = files_of(one.text, base, one.key), ""
        except DataError:
            return {}  # reading them raises the error that a user sees
    else:
        files, version = [path for path in places_of(one.text, base) if _is_file(path)][:1], ""
    if version:
        name, _, number = version.rpartition(" ")
        return {name: number}
    # from the recipe's folder on, so that a folder that was moved with its recipe is the same
    return {os.path.relpath(real_path(path), real_path(base or Path())): _digest(path) for path in files}


def _digest(path: Path, *, ends: bool = False) -> str:
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            if not ends or size <= WHOLE:
                return hashlib.file_digest(stream, "sha256").hexdigest()[:DIGITS]
            head = stream.read(WHOLE // 4)
            stream.seek(size - WHOLE // 4)
            return _digest_of(b"%d" % size + head + stream.read())
    except OSError as err:
        return (err.strerror or "cannot be read").lower()


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False  # a text that is no name of a file
