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

    found = set[int]()
    for token, text in special.items():
        match = _TAG.fullmatch(text)
        pair = {f"<{match[1]}>", f"</{match[1]}>"} if match is not None and match[1] != "s" else set[str]()
        # both halves, and neither of them a role: `<pad>` is no text, though there may be a `</pad>`
        if is_tag(text) or (pair and pair <= texts and not pair & named):
            found.add(token)
    return found
