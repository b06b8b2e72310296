"""How large the model is, from its files alone: `config.json`, and the headers of its safetensors where they lie here.

How this works: headers of the weight files are counted where they lie here; else the shapes in `config.json` are added up; where no
file of the model is here, the shapes of a common model of that name stand in (`known_shapes.json`), so that memory and hours can be
computed without a network. `source` names which of them it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.loading.adapter import base_of
from grpo_cli.policy.loading.files import BUILT_IN, ModelFiles, base_files, model_files
from grpo_cli.policy.loading.weights import read_headers
from grpo_cli.policy.tiny import TINY_VISION, VISION
from grpo_cli.recipe.sections.recipe import Model
from grpo_cli.text import path_of

FURTHER = re.compile(
    r"(-unsloth)?-(bnb-4bit|instruct|base|it|pt|chat|2507)$|-(instruct|thinking)(?=-(2507|v0\.\d)$)|^meta-(?=llama)"
)
"""What the names of models trained further or packed otherwise have behind the name of the shapes."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Parameters and the shapes that memory depends on; `source` is what they were read from."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int | None
    source: str
    is_tied: bool = False
    """Whether the head is the embeddings."""
    experts: int = 0
    """Of each block; 0 where every token goes through all of it."""
    kind: str = ""
    """`model_type` of its configuration."""

    @property
    def head_parameters(self) -> int:
        """Weights that make the logits of one token."""
        return self.vocab * self.hidden

    @property
    def body_parameters(self) -> int:
        """Weights that multiply every token: all but embeddings and head."""
        # tied embeddings are the head, so their weights stand in `parameters` once
        return self.parameters - self.head_parameters * (1 if self.is_tied else 2)

    @property
    def attention_width(self) -> int:
        """Numbers of a token's query, all heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers of a token's key in one layer, or of its value."""
        return self.kv_heads * self.head_dim

    @property
    def kv_values_token(self) -> int:
        """Numbers the KV cache keeps for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def lora_parameters(self, r: int) -> int:
        """Parameters of adapters of rank r on all linear layers of all blocks."""
        # A is r x in, B is out x r: r (in + out) a layer, for q and o, k and v, and the three of the MLP
        d, f, q, kv = (self.hidden, self.intermediate, self.heads * self.head_dim, self.kv_heads * self.head_dim)
        return self.layers * r * ((d + q) * 2 + (d + kv) * 2 + (d + f) * 3)


def read_sizes(model: Model, files: ModelFiles) -> ModelSizes | None:
    """The sizes, or None where no `config.json` lies here or it is of a kind we cannot add up."""
    if model.path == "builtin:tiny":
        from grpo_cli.policy.tiny import sizes

        return _sizes(sizes(model.context), files, "its definition")
    if model.path == TINY_VISION:
        return _sizes(VISION["text_config"] | {"tie_word_embeddings": True}, files, "its definition")
    config = files.json("config.json")
    if config is not None:
        return _sizes(config.get("text_config") or config, files, "config.json")
    name = known_name(model.path)
    return _sizes(known_shapes()[name], files, f"the known shapes of {name}") if name else None


@cache
def known_shapes() -> dict[str, dict[str, Any]]:
    """Shapes of common models by name, in the keys of their `config.json`."""
    return json.loads(Path(__file__).with_name("known_shapes.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def known_name(path: str) -> str | None:
    """The name in `known_shapes` for a hub id or a built-in name; the owner and suffixes of variants are ignored."""
    if path in BUILT_IN:
        return BUILT_IN[path].shapes
    if Path(path).is_absolute() or path.startswith((".", "~", "builtin:")) or path.count("/") > 1:
        return None  # a folder: whatever it is called, its own files decide what it is
    short = {name.lower(): name for name in known_shapes()}
    return next((short[own] for own in _bare_names(path) if own in short), None)


def _bare_names(path: str) -> Iterator[str]:
    """The name without its owner, then without one ending after the other."""
    own, longer = path.rpartition("/")[2].lower(), ""
    while own != longer:
        yield own
        own, longer = FURTHER.sub("", own, count=1), own


def size_hint(model: Model) -> str:
    """What helps where the sizes are unknown: the nearest names that are known, and the key that takes a configuration."""
    names = {name.lower(): name for name in known_shapes()}
    *_, bare = _bare_names(model.path)
    near = [names[one] for one in get_close_matches(bare, names)]
    said = f"the nearest known shapes are those of {', '.join(f'`{one}`' for one in near)}; " if near else ""
    return f"{said}`model.path` may be a folder that holds its `config.json` alone"


def local_sizes(model: Model) -> ModelSizes | None:
    """The sizes from files on this disk (a GGUF's header too); None where these do not hold them. The hub is not
    asked."""
    is_gguf = model.gguf_file is not None or model.path.endswith(".gguf")
    is_wheel = model.path in BUILT_IN
    if is_wheel or (is_gguf and path_of(model.path).exists()):
        return full_sizes(model)
    # sizes are a help, not a check: a file that cannot be opened gives None here, and loading reports the error
    try:
        whole = base_of(model, 0).model
    except (RecipeError, SetupError):  # an adapter whose base is not here
        return None
    return read_sizes(whole, model_files(whole))


def vocabulary_of(model: Model, sizes: ModelSizes | None) -> int | None:
    """How many tokens a model knows, also where its configuration gives the other sizes names of its family's own."""
    if sizes is not None:
        return sizes.vocab
    known = (model_files(model).json("config.json") or {}).get("vocab_size")
    return known if isinstance(known, int) else None


def full_sizes(model: Model) -> ModelSizes | None:
    """The sizes by way of transformers, which also reads GGUF headers; None where it has no such model."""
    if model.path in ("builtin:tiny", TINY_VISION):
        return read_sizes(model, ModelFiles(None, None, None))
    from grpo_cli.policy.model import load_config

    try:
        config = load_config(model).to_dict()
    except SetupError:
        return None
    return _sizes(config.get("text_config") or config, base_files(model), "its config")


def _sizes(config: dict[str, Any], files: ModelFiles, source: str) -> ModelSizes | None:
    # the headers of the weight files are exact, whatever the family; a sum over shapes stands in where one is missing
    shapes = read_headers(files)
    counted = None if shapes is None else sum(map(prod, shapes.values()))
    try:
        d, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        f, vocab = config["intermediate_size"], config["vocab_size"]
    except KeyError:
        return None
    kv_heads = config.get("num_key_value_heads") or heads
    experts = config.get("num_experts", config.get("num_local_experts")) or 0
    if not all(type(one) is int and one > 0 for one in (d, layers, heads, f, vocab, kv_heads, experts or 1)):
        return None  # loading refuses it
    head_dim = config.get("head_dim") or d // heads
    if type(head_dim) is not int or head_dim < 1:
        return None
    # the sum below leaves experts out, and would be many times too small
    if counted is None and experts:
        return None
    context = config.get("max_position_embeddings")
    # per layer: q and o, k and v, three matrices of the MLP, two norms; and one norm behind the last
    attention = 2 * d * heads * head_dim + 2 * d * kv_heads * head_dim
    is_tied = bool(config.get("tie_word_embeddings"))
    embeddings = vocab * d * (1 if is_tied else 2)
    added_up = embeddings + layers * (attention + 3 * d * f + 2 * d) + d
    return ModelSizes(
        parameters=counted or added_up,
        layers=layers,
        hidden=d,
        intermediate=f,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        context=context if type(context) is int else None,
        source="safetensors headers" if counted else source,
        is_tied=is_tied,
        experts=int(experts),
        kind=str(config.get("model_type") or ""),
    )
