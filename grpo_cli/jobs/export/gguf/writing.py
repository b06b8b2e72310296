"""The file itself, written tensor by tensor and whole or not at all."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.jobs.export.gguf.architecture import Architecture, architecture_of, tensors_of
from grpo_cli.jobs.export.gguf.vocabulary import Vocabulary, vocabulary_of
from grpo_cli.policy.loading.packages import PackageNeed
from grpo_cli.policy.policy import Policy

if TYPE_CHECKING:
    from gguf import GGUFWriter

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
