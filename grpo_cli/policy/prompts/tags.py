"""Special tokens that are text to a verifier: decoding keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from grpo_verifiers.thinking import is_tag

_TAG = re.compile(r"</?([A-Za-z][\w:-]*)>")
ROLES = ("bos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def tags_among(special: Mapping[int, str], roles: Mapping[str, str]) -> set[int]:
    """The special tokens that are text to a verifier: those that begin or end a thinking, and pairs `<x>`, `</x>`.

    `roles`: what the tokenizer itself uses tokens for; `<s>` and `</s>` begin and end a text.
    """
    texts, named = set(special.values()), {roles.get(role) for role in ROLES}

    def is_pair(text: str) -> bool:
        match = _TAG.fullmatch(text)
        if match is None or match[1] == "s":
            return False
        pair = {f"<{match[1]}>", f"</{match[1]}>"}
        return pair <= texts and not pair & named

    return {token for token, text in special.items() if is_tag(text) or is_pair(text)}
