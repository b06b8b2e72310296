"""Prompts as text and as tokens without transformers: the model's own `tokenizer.json` and chat template.

`prompt_maker` reads the tokenizer's files; `full_prompt_maker` (`--full`) loads it through transformers. Both give a
`PromptMaker`, which renders rows and encodes them in batches. Nothing is downloaded. If a tokenizer needs more than its
files, `UnknownTokens` is raised with a reason; nothing is guessed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Any, Protocol

from grpo_cli.data.images import RowImage
from grpo_cli.data.rows import Row
from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.failures import sentence
from grpo_cli.policy.loading.files import BUILT_IN, ModelFiles, base_files, end_ids, tokenizer_files
from grpo_cli.policy.prompts.chat_template import ChatTemplate, Templates
from grpo_cli.policy.prompts.prompt import Prompts
from grpo_cli.policy.prompts.turns import template_warnings
from grpo_cli.policy.tiny import (
    CHAT_TEMPLATE,
    GRIDS,
    LEAST_PIXELS,
    MERGE,
    MOST_PIXELS,
    PATCH,
    TINY_VISION,
    VISION_TEMPLATE,
    byte_level,
)
from grpo_cli.recipe.sections.inputs import ImagePixels
from grpo_cli.recipe.sections.recipe import Model

BATCH = 512
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class UnknownTokens(Exception):
    """Prompts cannot be made without loading more; the message is the reason."""


class TextEncoder(Protocol):
    """Texts to token ids; `is_chat`: the text has its own first token."""

    def ids(self, texts: Sequence[str], is_chat: bool) -> list[list[int]]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def vocabulary(self) -> Mapping[str, int]: ...
    @property
    def special(self) -> Mapping[int, str]: ...
    @property
    def added(self) -> Mapping[int, str]: ...


@dataclass(frozen=True)
class PromptMaker:
    """A recipe's prompts: how rows are rendered, and how the text becomes tokens."""

    prompts: Prompts
    encodes: TextEncoder
    roles: Mapping[str, str]
    """The tokens with a name of their own, such as `bos_token`."""
    model_ends: Set[int] | None = None
    """The tokens that end a completion by the model's files; None where they are not here."""
    image_cost: Callable[[RowImage], int] | None = None
    """How many tokens an image costs; None where the model reads none, or its processor alone can count them."""

    @property
    def ends(self) -> set[int]:
        """The tokens that end a completion, as far as they are known."""
        named = self.roles.get("eos_token")
        own = {token for token, text in self.encodes.added.items() if text == named}
        return own | set(self.model_ends or ())

    def template_warnings(self, stop: Sequence[str]) -> list[str]:
        """Where the chat template and the recipe disagree; `stop` as in `sample.stop`."""

        def encode(text: str) -> list[int]:
            return self.encodes.ids([text], True)[0]

        ends = None if self.model_ends is None else self.ends
        return template_warnings(self.prompts, encode, self.encodes.added, ends, stop)

    def ids(self, rows: Sequence[Row]) -> list[list[int]]:
        """Token ids of each row's prompt.

        Raises:
            SetupError, DataError: a row that cannot be rendered.
        """
        found: list[list[int]] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            texts = [self.prompts.text(row) for row in batch]
            found += self.encodes.ids(texts, batch[0].messages is not None)
        return found

    def counts(self, rows: Sequence[Row]) -> list[int]:
        """How many tokens each row's prompt has, those of its images with it.

        Raises:
            UnknownTokens: what an image costs is not known.
        """
        counts = [len(ids) for ids in self.ids(rows)]
        # a rendered text has one token in the place of each image
        return [
            count + sum(self.cost(image) - 1 for image in row.images) for count, row in zip(counts, rows, strict=True)
        ]

    def cost(self, image: RowImage) -> int:
        """How many tokens an image costs.

        Raises:
            UnknownTokens: it is not known.
        """
        if self.image_cost is None:
            raise UnknownTokens("the processor of this model counts the tokens of an image")
        return self.image_cost(image)


@dataclass(frozen=True)
class GridCost:
    """The tokens of an image in the Qwen2-VL family: one for each square of `side` pixels, after the image was scaled so that its
    sides are multiples of that and its pixels within the bounds."""

    side: int
    least: int
    most: int

    def __call__(self, image: RowImage) -> int:
        sides, pixels = (image.height, image.width), image.height * image.width
        cells = [round(side / self.side) for side in sides]
        area = cells[0] * cells[1] * self.side**2
        if area > self.most:
            shrink = sqrt(pixels / self.most)
            cells = [max(1, floor(side / shrink / self.side)) for side in sides]
        elif area < self.least:
            grow = sqrt(self.least / pixels)
            cells = [ceil(side * grow / self.side) for side in sides]
        return cells[0] * cells[1]


def grid_cost(model: Model, pixels: ImagePixels) -> GridCost | None:
    """What an image costs by the model's files; None where they do not say."""
    if model.kind == "text":
        return None
    found: Any = {"patch_size": PATCH, "merge_size": MERGE, "min_pixels": LEAST_PIXELS, "max_pixels": MOST_PIXELS}
    if model.path != TINY_VISION:
        files = base_files(model)
        if (files.json("config.json") or {}).get("model_type") not in GRIDS:
            return None
        found = files.json("preprocessor_config.json") or (files.json("processor_config.json") or {}).get(
            "image_processor"
        )
    if not isinstance(found, dict):
        return None
    size = found.get("size") or {}
    least = pixels.least or found.get("min_pixels") or size.get("shortest_edge")
    most = pixels.most or found.get("max_pixels") or size.get("longest_edge")
    patch, merge = found.get("patch_size"), found.get("merge_size")
    if not (isinstance(patch, int) and isinstance(merge, int) and isinstance(least, int) and isinstance(most, int)):
        return None
    return GridCost(patch * merge, least, most)


def prompt_maker(
    model: Model, chat: Mapping[str, object] | None = None, pixels: ImagePixels | None = None
) -> PromptMaker:
    """The recipe's prompts, from the files of the tokenizer alone; `pixels` bounds their images.

    Raises:
        UnknownTokens: the files do not suffice.
        SetupError: one of them cannot be read.
    """
    cost, sees = grid_cost(model, pixels or ImagePixels()), model.path == TINY_VISION
    if model.path in ("builtin:tiny", TINY_VISION) and model.tokenizer is None:
        special = {"eos_token": "<|end|>", "pad_token": "<|pad|>"}
        prompts = _prompts(model.chat_template or (VISION_TEMPLATE if sees else CHAT_TEMPLATE), special, chat)
        return PromptMaker(prompts, _Raw(byte_level(sees=sees)), special, set(), cost)
    files = tokenizer_files(model)
    path = files.path("tokenizer.json")
    if path is None or (model.tokenizer is None and model.gguf_file):
        inside = model.tokenizer is None and (model.gguf_file or model.path.endswith(".gguf") or model.path in BUILT_IN)
        raise UnknownTokens(
            "the tokenizer is inside the GGUF file" if inside else "no `tokenizer.json` of this model on this disk"
        )
    config = files.json("tokenizer_config.json") or {}
    more = files.json("special_tokens_map.json") or {}
    special = {name: text for name in NAMED if (text := _token(config.get(name) or more.get(name)))}
    prompts = _prompts(model.chat_template or _template(files, config), special, chat)
    # its threads and forked workers do not go together
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    try:
        inner = Tokenizer.from_file(str(path))
    except Exception as err:  # the Rust library raises plain Exception for a file it cannot read
        raise SetupError(f"cannot load the tokenizer of `{model.path}`: {sentence(err)}") from err
    inner.no_truncation()
    inner.no_padding()
    return PromptMaker(prompts, _Raw(inner), special, end_ids(base_files(model)), cost)


def full_prompt_maker(
    model: Model, chat: Mapping[str, object] | None = None, pixels: ImagePixels | None = None
) -> PromptMaker:
    """The recipe's prompts by way of transformers, for tokenizers that need it (GGUF, SentencePiece); slow to import.

    Raises:
        SetupError: it cannot be loaded either.
    """
    from grpo_cli.policy.model import load_tokenizer
    from grpo_cli.policy.tokens import prompts_of

    tokenizer = load_tokenizer(model)
    ends, pixels = end_ids(base_files(model)), pixels or ImagePixels()
    cost: Callable[[RowImage], int] | None = grid_cost(model, pixels)
    if cost is None and model.kind == "vision":
        from grpo_cli.policy.model import model_processor

        processor = model_processor(model, tokenizer, pixels)

        def cost(image: RowImage) -> int:
            made = processor(text=[processor.image_token], images=[[image.picture()]], add_special_tokens=False)
            return len(made["input_ids"][0])

    prompts, special = prompts_of(tokenizer, chat), tokenizer.special_tokens_map
    return PromptMaker(prompts, _Loaded(tokenizer), special, ends, cost)


def _prompts(templates: Templates | None, special: Mapping[str, str], chat: Mapping[str, object] | None) -> Prompts:
    return Prompts(ChatTemplate(templates, special, chat or {}) if templates else None)


class _Raw:
    """A tokenizer of the library `tokenizers`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        decoder = inner.get_added_tokens_decoder()
        self.added = {token: one.content for token, one in decoder.items()}
        self.special = {token: one.content for token, one in decoder.items() if one.special}

    def ids(self, texts: Sequence[str], is_chat: bool) -> list[list[int]]:
        return [found.ids for found in self.inner.encode_batch_fast(list(texts), add_special_tokens=not is_chat)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.inner.decode(list(token_ids), skip_special_tokens=False))

    def vocabulary(self) -> Mapping[str, int]:
        return dict(self.inner.get_vocab())


class _Loaded:
    """A tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        from grpo_cli.policy.tokens import special_tokens

        self.tokenizer = tokenizer
        self.added = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items()}
        self.special = special_tokens(tokenizer)

    def ids(self, texts: Sequence[str], is_chat: bool) -> list[list[int]]:
        return [list(self.tokenizer(text, add_special_tokens=not is_chat).input_ids) for text in texts]

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def vocabulary(self) -> Mapping[str, int]:
        return dict(self.tokenizer.get_vocab())


def _template(files: ModelFiles, config: dict[str, Any]) -> Templates | None:
    """The chat templates as transformers finds them: files beside the tokenizer, else its configuration."""
    path, tools = files.path("chat_template.jinja"), files.path("additional_chat_templates/tool_use.jinja")
    if path is not None and tools is not None:
        return {"default": path.read_text(encoding="utf-8"), "tool_use": tools.read_text(encoding="utf-8")}
    if path is not None:
        return path.read_text(encoding="utf-8")
    # of some models that read images the processor alone has it
    template = config.get("chat_template") or (files.json("chat_template.json") or {}).get("chat_template")
    if isinstance(template, list):
        return {str(one.get("name")): str(one.get("template")) for one in template if isinstance(one, dict)}
    return template if isinstance(template, str) else None


def _token(value: Any) -> str:
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""
