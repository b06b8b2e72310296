"""The file itself, written tensor by tensor and whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.jobs.export.gguf.architecture import HINT, Architecture, architecture_of, tensors_of
from grpo_cli.policy.loading.packages import PackageNeed
from grpo_cli.policy.policy import Policy

if TYPE_CHECKING:
    from gguf import GGUFWriter


# A tokenizer as llama.cpp reads it: byte-level BPE, with one of the ways to cut a text that it has by name.

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
        raise SetupError(f"the tokenizer has a token {max(texts)}, and the model {size} embeddings", hint=HINT)
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


PRECISIONS = ("auto", "f32", "f16", "bf16", "q8_0")
"""What matrices may be written in; `auto` is bf16 where the weights are, else f16."""
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}
"""`llama_ftype` of llama.cpp."""
NEED = PackageNeed("gguf", "gguf", "writing a .gguf file")
BLOCK = 32
"""Numbers that share a scale in q8_0; a matrix whose rows are no multiple of it is written as f16."""


def check_gguf(policy: Policy) -> None:
    """Find out before anything is written.

    Raises:
        SetupError: no GGUF can be written of this policy, or a package is missing.
    """
    NEED.require()
    made = architecture_of(policy.model)
    vocabulary_of(policy, int(made.numbers["vocab_size"]))
    for _ in tensors_of(policy.model, made):
        pass


def write_gguf(policy: Policy, file: Path, precision: str = "auto") -> None:
    """Write the policy's model, adapters merged, and its tokenizer.

    Args:
        policy: what `check_gguf` lets pass.
        file: replaced as a whole.
        precision: of `PRECISIONS`.

    Raises:
        SetupError: no GGUF can be written of it, or not to this place.
    """
    check_gguf(policy)
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quant_shape_to_byte_shape, quantize

    made = architecture_of(policy.model)
    kind = _precision(policy, precision)
    part = file.with_name(file.name + ".part")
    try:
        writer = GGUFWriter(part, made.name)
        _describe(writer, made, vocabulary_of(policy, int(made.numbers["vocab_size"])), kind, file.stem)
        kinds = []
        for name, tensor in tensors_of(policy.model, made):
            kinds.append(GGMLQuantizationType[_kind_of(tensor, kind).upper()])
            shape = quant_shape_to_byte_shape(tuple(tensor.shape), kinds[-1])
            writer.add_tensor_info(name, shape, np.dtype(np.uint8), prod(shape), raw_dtype=kinds[-1])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for one, (_, tensor) in zip(kinds, tensors_of(policy.model, made), strict=True):
            writer.write_tensor_data(quantize(tensor.detach().float().cpu().contiguous().numpy(), one))
        writer.close()
        part.replace(file)
    except OSError as err:
        raise SetupError(f"cannot write `{file}`: {why_unwritten(err)}") from err
    finally:
        part.unlink(missing_ok=True)


def _precision(policy: Policy, asked: str) -> str:
    if asked != "auto":
        return asked
    return "bf16" if next(policy.model.parameters()).dtype == torch.bfloat16 else "f16"


def _kind_of(tensor: Tensor, kind: str) -> str:
    """Vectors (norms, biases) stay in float32, as llama.cpp computes with them."""
    if tensor.dim() == 1:
        return "f32"
    return "f16" if kind == "q8_0" and tensor.shape[-1] % BLOCK else kind


def _describe(writer: GGUFWriter, made: Architecture, words: Vocabulary, kind: str, name: str) -> None:
    """All that is no tensor."""
    writer.add_name(name)
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(2)
    for key, number in made.numbers.items():
        add = writer.add_float32 if isinstance(number, float) else writer.add_uint32
        add(f"{made.name}.{key}", number)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words.pre)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.kinds)
    writer.add_token_merges(words.merges)
    for key, number in words.numbers.items():
        writer.add_uint32(f"tokenizer.ggml.{key}", number)
    writer.add_add_bos_token(words.begins)
    if words.template is not None:
        writer.add_chat_template(words.template)
