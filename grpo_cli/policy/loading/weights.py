"""Weight files against `config.json`, by the headers of safetensors alone: names and shapes, no tensor is read.

For families laid out like Llama every tensor is compared. For others only the presence and length of the files is
checked. `wrong_weights` returns the first fault.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from grpo_cli.policy.loading.files import ModelFiles

MOST_HEADER_BYTES = 100_000_000
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
OTHER_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors")
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "smollm3")
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

Shapes = dict[str, tuple[int, ...]]


def read_header(path: Path) -> Shapes:
    """The shapes of the tensors in a safetensors file.

    Raises:
        OSError, ValueError, KeyError, struct.error: it is no safetensors file, or it is cut off.
    """
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        # the first eight bytes of any other file read as a length too
        if length > MOST_HEADER_BYTES:
            raise ValueError("no safetensors file")
        header = json.loads(stream.read(length))
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    # a broken download has the whole header but fewer bytes than the header states
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if path.stat().st_size < 8 + length + end:
        raise ValueError("the file is cut off")
    return {name: tuple(entry["shape"]) for name, entry in entries.items()}


def read_headers(files: ModelFiles) -> Shapes | None:
    """The shapes of all tensors in all weight files; None where one is missing or cannot be read."""
    index = files.json(INDEX)
    named = (index or {}).get("weight_map")
    names = sorted(set(named.values())) if isinstance(named, dict) else [SINGLE]
    paths = [files.path(name) for name in names]
    try:
        headers = [read_header(path) for path in paths if path is not None]
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None
    return {name: shape for one in headers for name, shape in one.items()} if all(paths) else None


def wrong_weights(files: ModelFiles, config: dict[str, Any], *, is_whole: bool) -> str:
    """The fault of the weights, as half a sentence; empty if there is none or it cannot be determined.

    `is_whole`: an absent file is missing (a folder); otherwise it may only not be downloaded yet (the hub's cache).
    """
    # an index names the parts; without one there is a single file
    index = files.json(INDEX)
    named = (index or {}).get("weight_map")
    names = sorted(set(named.values())) if isinstance(named, dict) else [SINGLE]
    paths = {name: files.path(name) for name in names}
    gone = [name for name, path in paths.items() if path is None]
    if gone:
        # weights in torch's own form have no header to read; loading judges them
        if not is_whole or (index is None and any(files.path(name) for name in OTHER_FILES)):
            return ""
        return f"the weight file `{gone[0]}` is missing" + (f", and {len(gone) - 1} more" if gone[1:] else "")
    there: Shapes = {}
    for name, path in paths.items():
        assert path is not None
        try:
            there |= read_header(path)
        except (OSError, ValueError, KeyError, TypeError, struct.error) as err:
            return f"the weight file `{name}` cannot be read: {err}"
    # quantised tensors have shapes and names of their own
    if config.get("quantization_config"):
        return ""
    expected = expected_shapes(config)
    if EMBEDDING not in there and EMBEDDING.removeprefix("model.") in there:
        return ""  # saved without its head: the loader adds the prefix
    missing = [name for name in expected if name not in there]
    # tied weights are saved once, under the embeddings' name
    if HEAD in missing and config.get("tie_word_embeddings", True):
        missing.remove(HEAD)
    if missing:
        return f"{len(missing):,} tensors are missing from the weights, first `{missing[0]}`"
    other = [name for name, shape in expected.items() if name in there and there[name] != shape]
    if other:
        first = other[0]
        return (
            f"{len(other):,} tensors have another shape than `config.json` says, first `{first}`:"
            f" {list(there[first])}, not {list(expected[first])}"
        )
    return ""


def linear_shapes(files: ModelFiles, config: dict[str, Any]) -> Shapes:
    """The tensors of a family that is laid out as Llama is, of its weight files where they are here, else as the configuration
    asks for them; nothing for other families."""
    expected = expected_shapes(config)
    if not expected or config.get("quantization_config"):
        return {}
    if config.get("tie_word_embeddings", True):
        expected.pop(HEAD)
    return read_headers(files) or expected


SIZES = ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "num_hidden_layers")
MOST_LAYERS = 10_000
DERIVED = ("head_dim", "num_key_value_heads")
"""Sizes that are derived from others when a configuration omits them."""


def expected_shapes(config: dict[str, Any]) -> Shapes:
    """The shapes that a configuration asks for; nothing for families that are laid out in another way."""
    if config.get("model_type") not in LLAMA_LIKE:
        return {}
    sizes: list[Any] = [config.get(name) for name in SIZES]
    # transformers has an error of its own for a size that is none
    if not all(isinstance(one, int) and one > 0 for one in (*sizes, *(config.get(name) or 1 for name in DERIVED))):
        return {}
    d, f, vocab, heads, layers = sizes
    if layers > MOST_LAYERS:
        return {}
    # the heads together may be wider than the model (Qwen3, Gemma)
    width = config.get("head_dim") or d // heads
    q, kv = heads * width, (config.get("num_key_value_heads") or heads) * width
    shapes: Shapes = {EMBEDDING: (vocab, d), "model.norm.weight": (d,), HEAD: (vocab, d)}
    inner: Shapes = {
        "self_attn.q_proj": (q, d),
        "self_attn.k_proj": (kv, d),
        "self_attn.v_proj": (kv, d),
        "self_attn.o_proj": (d, q),
        "mlp.gate_proj": (f, d),
        "mlp.up_proj": (f, d),
        "mlp.down_proj": (d, f),
        "input_layernorm": (d,),
        "post_attention_layernorm": (d,),
    }
    kind, biased = config["model_type"], set[str]()
    if config.get("attention_bias") is True and kind not in ("mistral", "qwen2"):
        biased |= {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}
    if config.get("mlp_bias") is True and kind in ("llama", "smollm3"):
        biased |= {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
    for i in range(layers):
        shapes |= {f"model.layers.{i}.{name}.bias": inner[name][:1] for name in inner if name in biased}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in inner.items()}
    return shapes
