"""Encodes rows into prompt ids, decodes completion ids into text, and determines the ids that end a completion."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import SetupError
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.prompts.chat_template import ChatTemplate
from grpo_cli.policy.prompts.prompt import Prompts
from grpo_cli.text import visible
from grpo_verifiers.thinking import is_tag

if TYPE_CHECKING:
    from torch import nn

    from grpo_cli.data.rows import Row
    from grpo_cli.policy.contract import Tokenizer


_TAG = re.compile(r"</?([A-Za-z][\w:-]*)>")
ROLES = ("bos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def prompts_of(tokenizer: Tokenizer, chat: Mapping[str, object] | None = None) -> Prompts:
    """How rows become prompts with this tokenizer's chat template, which gets `chat` in addition to the messages."""
    templates = tokenizer.chat_template
    if not templates:
        return Prompts(None)
    return Prompts(ChatTemplate(templates, tokenizer.special_tokens_map, chat or {}))


def encode(tokenizer: Tokenizer, row: Row, chat: Mapping[str, object] | None = None) -> list[int]:
    """The prompt's token ids. The chat template writes its own first token; plain text gets the tokenizer's.

    Raises:
        SetupError, DataError: as `Prompts.text`.
    """
    text = prompts_of(tokenizer, chat).text(row)
    # a second first token would shift every position, and no model was trained on two
    return list(tokenizer(text, add_special_tokens=row.messages is None).input_ids)


def decode(tokenizer: Tokenizer, token_ids: Sequence[Sequence[int]], kept: Set[int]) -> list[str]:
    """Texts without special tokens, but for those in `kept` (`tag_tokens`): verifiers look for them."""
    import numpy as np

    # transformers checks every number of a list (twice in nested lists), but takes an array as it is
    arrays = [np.asarray(ids, dtype=np.int64) for ids in token_ids]
    if not kept:
        return [tokenizer.decode(ids, skip_special_tokens=True) for ids in arrays]
    # drop ids here, because `skip_special_tokens` drops all special tokens or none
    dropped = sorted(special_tokens(tokenizer).keys() - kept)
    kept_ids = (ids[~np.isin(ids, dropped)] for ids in arrays)
    return [tokenizer.decode(ids, skip_special_tokens=False) for ids in kept_ids]


def special_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """The special tokens of a tokenizer."""
    return {token: str(added) for token, added in tokenizer.added_tokens_decoder.items() if added.special}


def tags_among(special: Mapping[int, str], roles: Mapping[str, str], marks: Sequence[str] = ()) -> set[int]:
    """The special tokens that are text to a verifier: those that begin or end a thinking, and pairs `<x>`, `</x>`.

    `roles`: the tokens with a role in the tokenizer (pad, bos, eos, …); `<s>` and `</s>` begin and end a text. `marks`: texts
    whose tokens are kept too.
    """
    texts, named = set(special.values()), {roles.get(role) for role in ROLES}

    found = set[int]()
    for token, text in special.items():
        match = _TAG.fullmatch(text)
        pair = {f"<{match[1]}>", f"</{match[1]}>"} if match is not None and match[1] != "s" else set[str]()
        # both halves, and neither of them a role: `<pad>` is no text, though there may be a `</pad>`
        if is_tag(text) or (text and text in "".join(marks)) or (pair and pair <= texts and not pair & named):
            found.add(token)
    return found


def tag_tokens(tokenizer: Tokenizer, marks: Sequence[str] = ()) -> set[int]:
    """Those of its special tokens that are tags."""
    return tags_among(special_tokens(tokenizer), tokenizer.special_tokens_map, marks)


def refuse_unpadded(token: object) -> None:
    """Raises SetupError where a tokenizer has no token to pad rows with: neither a pad nor an end token."""
    if token is None or token == "":
        raise SetupError(
            "the tokenizer has neither a pad nor an end token",
            hint="set `eos_token` in its `tokenizer_config.json`, or name a folder with another tokenizer in `model.tokenizer`",
        )


def refuse_other_tokens(
    said: str, own: Mapping[str, int], there: Mapping[str, int], known: int, known_there: int
) -> None:
    """Check that a critic reads the policy's token ids as the same tokens. `own` is the policy's vocabulary, `there`
    the critic's; the numbers are the vocabulary sizes of their models.

    Raises:
        SetupError: some of the policy's tokens are others to the critic's model, or unknown to it; it begins with `said`.
    """
    # compare text and id: two vocabularies of the same size may number the same words differently
    others = [text for text, number in own.items() if there.get(text) != number]
    hint = "name a model with the policy's own tokenizer"
    if others:
        raise SetupError(
            f"{said} has another tokenizer than the policy: {len(others):,} of {len(own):,} tokens, such as"
            f" `{visible(min(others, key=lambda text: own[text]))}`, have another number there",
            hint=hint,
        )
    if known_there < known:
        raise SetupError(f"{said} knows {known_there:,} tokens, the policy {known:,}", hint=hint)


def end_tokens(model: nn.Module, tokenizer: Tokenizer | None = None) -> set[int]:
    """Every id that ends a completion: the generation config's, the model config's and the tokenizer's."""
    base: Any = causal_model(model)
    ends: set[int] = set()
    # they disagree in many models: a chat model's configuration often names the end of text only
    for holder in (getattr(base, "generation_config", None), getattr(base, "config", None), tokenizer):
        token = getattr(holder, "eos_token_id", None)
        ends.update([token] if isinstance(token, int) else token or [])
    return ends
