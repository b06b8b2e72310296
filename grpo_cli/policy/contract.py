"""Types of the members that we use of transformers' models and tokenizers; mypy does not read its own types.

`CausalLM` is for annotations: what transformers loads has these members, and no class of ours inherits from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers.modeling_outputs import BaseModelOutputWithPast


class Encoded(Protocol):
    """A text as token ids."""

    input_ids: Sequence[int]


class AddedToken(Protocol):
    """A token that was added to the learned vocabulary; `str(token)` is its text."""

    special: bool


class Tokenizer(Protocol):
    """transformers' tokenizer, as far as it is used here."""

    padding_side: str
    pad_token: str | None
    eos_token: str | None
    pad_token_id: int | None
    eos_token_id: int | None
    chat_template: str | Mapping[str, str] | None
    special_tokens_map: Mapping[str, str]
    added_tokens_decoder: Mapping[int, AddedToken]

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> Encoded: ...
    def decode(self, token_ids: NDArray[np.int64], *, skip_special_tokens: bool) -> str: ...
    def batch_decode(self, token_ids: Sequence[NDArray[np.int64]], *, skip_special_tokens: bool) -> list[str]: ...
    def convert_tokens_to_ids(self, tokens: Sequence[str] | str) -> Any: ...
    def get_vocab(self) -> dict[str, int]: ...
    def save_pretrained(self, folder: str | Path) -> object: ...


class GenerationIds(Protocol):
    """The special tokens of a model's generation config, and what it takes to save one."""

    pad_token_id: int | None
    eos_token_id: int | list[int] | None
    do_sample: bool | None

    def to_dict(self) -> dict[str, Any]: ...
    def validate(self, strict: bool = False) -> None: ...


class ModelConfig(Protocol):
    """A model's configuration, or the part of it that is about text."""

    vocab_size: int

    def get_text_config(self) -> ModelConfig: ...


class Backbone(nn.Module):
    """The layers below a model's output head."""

    forward: Callable[..., BaseModelOutputWithPast]
    __call__: Callable[..., BaseModelOutputWithPast]


class CausalLM(nn.Module):
    """A causal language model of transformers, or one in PEFT's wrapper."""

    config: ModelConfig
    generation_config: GenerationIds
    name_or_path: str
    base_model: Backbone

    get_input_embeddings: Callable[[], nn.Embedding]
    get_output_embeddings: Callable[[], nn.Linear | None]
    merge_and_unload: Callable[[], CausalLM]
    save_pretrained: Callable[[str | Path], None]
