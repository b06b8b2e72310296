"""A tokenizer as llama.cpp reads it: byte-level BPE, with one of the ways to cut a text that it has by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_cli.errors import SetupError
from grpo_cli.jobs.export.gguf.architecture import HINT
from grpo_cli.policy.policy import Policy

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""`llama_token_type` of llama.cpp."""
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PATTERNS = {
    rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}": "qwen2",
    rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}": "llama-bpe",
}
"""Where a text is cut before pairs are merged -> what llama.cpp calls it."""
NO_MERGE = "\u2610 \u2610"
"""llama.cpp wants a merge to be there; of characters that no byte is written as, it never happens."""


@dataclass(frozen=True)
class Vocabulary:
    """What the keys `tokenizer.ggml.*` say."""

    pre: str
    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    numbers: Mapping[str, int]
    begins: bool
    """Whether a text begins with the token `bos`."""
    template: str | None


def vocabulary_of(policy: Policy, size: int) -> Vocabulary:
    """The tokenizer of a policy whose model has embeddings for `size` tokens.

    Raises:
        SetupError: llama.cpp would cut texts otherwise.
    """
    tokenizer: Any = policy.tokenizer
    inner = getattr(tokenizer, "backend_tokenizer", None)
    said: dict[str, Any] = json.loads(inner.to_str()) if inner is not None else {"model": {"type": "unknown"}}
    model = said["model"]
    if model["type"] != "BPE" or model.get("byte_fallback") or model.get("unk_token"):
        raise SetupError("no GGUF is written of a tokenizer that is not byte-level BPE", hint=HINT)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    pre = _pre(said.get("pre_tokenizer") or {}, has_merges=bool(merges))
    if pre is None or bool(model.get("ignore_merges")) != (pre == "llama-bpe"):
        raise SetupError(
            "no GGUF is written of a tokenizer that cuts texts in a way llama.cpp has no name for", hint=HINT
        )
    texts = {number: text for text, number in model["vocab"].items()}
    kinds = dict.fromkeys(texts, NORMAL)
    for one in said.get("added_tokens", []):
        texts[one["id"]] = one["content"]
        kinds[one["id"]] = CONTROL if one["special"] else USER_DEFINED
    if max(texts) >= size:
        raise SetupError(
            f"the tokenizer has a token {max(texts)}, and the model {size} embeddings", hint=HINT
        )
    return Vocabulary(
        pre,
        [texts.get(number, f"[PAD{number}]") for number in range(size)],
        [kinds.get(number, UNUSED) for number in range(size)],
        merges or [NO_MERGE],
        _special(policy),
        _begins(policy),
        tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None,
    )


def _pre(said: Mapping[str, Any], *, has_merges: bool) -> str | None:
    """What llama.cpp calls a way to cut a text; None where it has none."""
    parts = said["pretokenizers"] if said.get("type") == "Sequence" else [said]
    last = parts[-1]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return None
    before = parts[:-1]
    if not has_merges:  # every byte is a token, wherever the text is cut
        return "gpt-2" if not before else None
    if last.get("use_regex", True):
        if not before:
            return "gpt-2"
        digits = len(before) == 1 and before[0].get("type") == "Digits" and before[0].get("individual_digits")
        return "smollm" if digits else None
    if len(before) != 1 or before[0].get("type") != "Split" or before[0].get("behavior") != "Isolated":
        return None
    pattern = before[0]["pattern"]
    return PATTERNS.get(str(pattern.get("Regex"))) if not before[0].get("invert") else None


def _special(policy: Policy) -> dict[str, int]:
    """Ids by their keys: the tokens that end an answer, that fill a row, that begin a text."""
    tokenizer: Any = policy.tokenizer
    ends = sorted(policy.end_ids)
    first = tokenizer.eos_token_id if tokenizer.eos_token_id in policy.end_ids else next(iter(ends), None)
    others = [end for end in ends if end != first]
    found = {
        "eos_token_id": first,
        "eot_token_id": others[0] if others else None,
        "bos_token_id": tokenizer.bos_token_id,
        "padding_token_id": tokenizer.pad_token_id,
    }
    return {key: number for key, number in found.items() if number is not None}


def _begins(policy: Policy) -> bool:
    tokenizer: Any = policy.tokenizer
    ids = tokenizer("a").input_ids
    return tokenizer.bos_token_id is not None and bool(ids) and ids[0] == tokenizer.bos_token_id
