"""A checkpoint as one `.gguf` file that llama.cpp loads, and the Modelfile that Ollama wants beside it.

The first part lists the supported architectures, llama.cpp's names for their tensors, and their layout. The second
writes metadata, vocabulary and tensors with gguf's writer. The third derives Ollama's chat template from the output of
the tokenizer's template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import pi, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_cli.errors import SetupError, why_unwritten
from grpo_cli.policy.contract import CausalLM
from grpo_cli.policy.loading.packages import PackageNeed
from grpo_cli.policy.policy import Policy
from grpo_cli.policy.tokens import prompts_of
from grpo_cli.recipe.sections.recipe import Recipe

NAMES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""`model_type` of transformers -> `general.architecture` of GGUF."""
TURNED = {"llama"}
"""Architectures whose rotary embedding rotates neighbours, not halves, in llama.cpp: rows of queries and keys are
reordered for it."""
HINT = (
    "export the plain folder (without `--format gguf`) and give it to `convert_hf_to_gguf.py` of llama.cpp, which knows more"
    " models"
)
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@dataclass(frozen=True)
class Architecture:
    """The metadata that llama.cpp needs besides the tensors."""

    name: str
    numbers: Mapping[str, int | float]
    """Keys below `name`."""
    rope_factors: Tensor | None
    """[head width / 2] float32, what each frequency is divided by (Llama 3.1's scaling)."""


def architecture_of(model: CausalLM) -> Architecture:
    """What GGUF records of this model.

    Raises:
        SetupError: llama.cpp would compute something else, or it is unknown what it would compute.
    """
    config: Any = model.config.get_text_config()
    name = NAMES.get(config.model_type)
    if name is None:
        raise SetupError(f"no GGUF is written of a model of the type `{config.model_type}`", hint=HINT)
    rope = dict(getattr(config, "rope_parameters", None) or {})
    kind = rope.get("rope_type", "default")
    unlike = {
        f"the activation `{config.hidden_act}`": config.hidden_act != "silu",
        "a bias in its MLP": bool(getattr(config, "mlp_bias", False)),
        "a sliding window": bool(getattr(config, "use_sliding_window", False)),
        f"rotary embeddings of the kind `{kind}`": kind not in ("default", "llama3"),
    }
    found = [what for what, holds in unlike.items() if holds]
    if found:
        raise SetupError(f"no GGUF is written of a model with {' and '.join(found)}", hint=HINT)
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None) or heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": width,
        "rope.freq_base": float(rope.get("rope_theta", 10_000.0)),
    }
    return Architecture(name, numbers, _llama3_factors(rope, width) if kind == "llama3" else None)


def tensors_of(model: CausalLM, made: Architecture) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors as llama.cpp wants them: matrices [out, in] and vectors [width], in the model's own type.

    Raises:
        SetupError: a weight has no place there.
    """
    config: Any = model.config.get_text_config()
    heads = {"self_attn.q_proj": made.numbers["attention.head_count"]}
    heads["self_attn.k_proj"] = made.numbers["attention.head_count_kv"]
    if made.rope_factors is not None:
        yield "rope_freqs.weight", made.rope_factors
    for own, weight in model.state_dict().items():
        place, _, part = own.rpartition(".")
        if place == "lm_head" and config.tie_word_embeddings:
            continue
        if place in WHOLE:
            yield f"{WHOLE[place]}.{part}", weight
            continue
        parts = place.split(".", 3)
        inner = parts[3] if len(parts) == 4 and place.startswith("model.layers.") else ""
        if inner not in LAYER:
            raise SetupError(f"no GGUF is written of a model with a weight `{own}`", hint=HINT)
        if made.name in TURNED and inner in heads:
            weight = neighbours(weight, int(heads[inner]))
        yield f"blk.{parts[2]}.{LAYER[inner]}.{part}", weight


def neighbours(weight: Tensor, heads: int) -> Tensor:
    """Rows [heads x width, ...] reordered within each head: from rotating halves to rotating neighbours."""
    width = weight.shape[0] // heads
    halves = weight.reshape(heads, 2, width // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def _llama3_factors(rope: Mapping[str, Any], width: int) -> Tensor:
    """Llama 3.1's divisor of each frequency: 1 for short wavelengths, `factor` for those longer than the old context,
    and interpolated in between (`_compute_llama3_parameters` of transformers)."""
    frequencies = 1.0 / float(rope["rope_theta"]) ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    factor, old = float(rope["factor"]), float(rope["original_max_position_embeddings"])
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    turns = old * frequencies / (2 * pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).float()


# A tokenizer in llama.cpp's form: byte-level BPE, with one of the pre-tokenizers that it knows by name.

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""`llama_token_type` of llama.cpp."""
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PATTERNS = {
    rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}": "qwen2",
    rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}": "llama-bpe",
}
"""The regular expression that splits a text before merging -> llama.cpp's name for it."""
NO_MERGE = "\u2610 \u2610"
"""llama.cpp requires at least one merge; this one, of characters that represent no byte, never applies."""


@dataclass(frozen=True)
class Vocabulary:
    """The values of the keys `tokenizer.ggml.*`."""

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
        SetupError: llama.cpp would tokenise texts differently.
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
    ids = tokenizer("a").input_ids
    # the end token, the pad token, the token that begins a text
    ends = sorted(policy.end_ids)
    first = tokenizer.eos_token_id if tokenizer.eos_token_id in policy.end_ids else next(iter(ends), None)
    special = {
        "eos_token_id": first,
        "eot_token_id": next((end for end in ends if end != first), None),
        "bos_token_id": tokenizer.bos_token_id,
        "padding_token_id": tokenizer.pad_token_id,
    }
    return Vocabulary(
        pre,
        [texts.get(number, f"[PAD{number}]") for number in range(size)],
        [kinds.get(number, UNUSED) for number in range(size)],
        merges or [NO_MERGE],
        {key: number for key, number in special.items() if number is not None},
        tokenizer.bos_token_id is not None and bool(ids) and ids[0] == tokenizer.bos_token_id,
        tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None,
    )


def _pre(said: Mapping[str, Any], *, has_merges: bool) -> str | None:
    """llama.cpp's name for a pre-tokenizer; None if it does not have it."""
    parts = said["pretokenizers"] if said.get("type") == "Sequence" else [said]
    last = parts[-1]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return None
    before = parts[:-1]
    if not has_merges:  # every byte is a token, so pre-tokenisation does not matter
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


FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}
"""`llama_ftype` of llama.cpp."""
NEED = PackageNeed("gguf", "gguf", "writing a .gguf file")
BLOCK = 32
"""Numbers that share a scale in q8_0; a matrix whose rows are no multiple of it is written as f16."""


def check_gguf(policy: Policy) -> None:
    """Check the policy before anything is written.

    Raises:
        SetupError: no GGUF can be written of this policy, or a package is missing.
    """
    if policy.vision is not None:
        raise SetupError("no GGUF is written of a model that reads images", hint="leave `--gguf` out")
    NEED.require()
    made = architecture_of(policy.model)
    vocabulary_of(policy, int(made.numbers["vocab_size"]))
    for _ in tensors_of(policy.model, made):
        pass


def write_gguf(policy: Policy, file: Path, precision: str = "auto") -> None:
    """Write the policy's model, adapters merged, and its tokenizer.

    Args:
        policy: one that passed `check_gguf`.
        file: the path to write; an existing file is replaced.
        precision: of matrices: a key of `FILE_TYPES`, or `auto`, bf16 where the weights are, else f16.

    Raises:
        SetupError: no GGUF can be written of it, or not to this place.
    """
    check_gguf(policy)
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quant_shape_to_byte_shape, quantize

    made = architecture_of(policy.model)
    kind = precision
    if kind == "auto":
        kind = "bf16" if next(policy.model.parameters()).dtype == torch.bfloat16 else "f16"
    part = file.with_name(file.name + ".part")
    try:
        writer = GGUFWriter(part, made.name)
        words = vocabulary_of(policy, int(made.numbers["vocab_size"]))
        writer.add_name(file.stem)
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
        kinds = []
        for name, tensor in tensors_of(policy.model, made):
            # vectors (norms, biases) stay in float32, as llama.cpp computes with them
            own = "f16" if kind == "q8_0" and tensor.shape[-1] % BLOCK else kind
            kinds.append(GGMLQuantizationType[("f32" if tensor.dim() == 1 else own).upper()])
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


UNKNOWN = "# The chat template could not be put in Ollama's words; Ollama takes the file's own where it knows it."
Turn = tuple[str, str]
"""Role and content."""


@dataclass(frozen=True)
class ChatForm:
    """A chat as texts around its contents.

    `none` stands first where there is no system message; an answer follows each question, so `answers` is the end of a question
    and the beginning of its answer.
    """

    none: str
    system: tuple[str, str]
    asks: str
    answers: str
    ends: str

    def render(self, turns: list[Turn]) -> str:
        """The text after which the model goes on."""
        text = "" if turns[0][0] == "system" else self.none
        for role, content in turns:
            if role == "system":
                text += self.system[0] + content + self.system[1]
            else:
                text += self.asks + content + self.answers if role == "user" else content + self.ends
        return text

    def template(self) -> str:
        """The same in Go's template language, with Ollama's variables."""
        system = f"{{{{ if .System }}}}{_go(self.system[0])}{{{{ .System }}}}{_go(self.system[1])}"
        user = f'{{{{ if eq .Role "user" }}}}{_go(self.asks)}{{{{ .Content }}}}{_go(self.answers)}'
        answer = f'{{{{ else if eq .Role "assistant" }}}}{{{{ .Content }}}}{_go(self.ends)}'
        return (
            f"{system}{{{{ else }}}}{_go(self.none)}{{{{ end }}}}"
            f"{{{{ range .Messages }}}}{user}{answer}{{{{ end }}}}{{{{ end }}}}"
        )


def chat_form(policy: Policy) -> ChatForm | None:
    """The chat format of this policy; None if it is not made of fixed texts around contents."""
    # contents that occur in no template
    s, u, a, v = ("\u27e6s\u27e7", "\u27e6u\u27e7", "\u27e6a\u27e7", "\u27e6v\u27e7")
    try:
        alone = _around(policy, [("user", u)])
        led = _around(policy, [("system", s), ("user", u)])
        longer = _around(policy, [("user", u), ("assistant", a), ("user", v)])
        if (len(alone), len(led), len(longer)) != (2, 3, 4):
            return None
        checks = [
            [("user", u), ("assistant", a), ("user", v)],
            [("system", s), ("user", u)],
            [("system", s), ("user", v), ("assistant", a), ("user", u), ("assistant", v), ("user", a)],
        ]
        between = longer[2]  # the end of an answer and the beginning of a question
        found = []
        for cut in range(len(between) + 1):
            asks = between[cut:]
            if alone[0].endswith(asks) and led[1].endswith(asks):
                none, before = alone[0].removesuffix(asks), led[1].removesuffix(asks)
                form = ChatForm(none, (led[0], before), asks, alone[1], between[:cut])
                if all(form.render(turns) == _rendered(policy, turns) for turns in checks):
                    found.append(form)
    except Exception:  # noqa: BLE001 - a template may refuse a role by an error of any kind
        return None
    # the text could be split anywhere: split after the end token, if there is one
    marks = tuple(str(one) for one in policy.tokenizer.added_tokens_decoder.values())
    whole = [form for form in found if form.ends and form.asks.startswith(marks)]
    return next(iter([*whole, *found]), None)


def modelfile(policy: Policy, recipe: Recipe, file: str) -> str:
    """The text of Ollama's `Modelfile` for a `.gguf` file that lies beside it."""
    lines = [f"FROM ./{file}"]
    if recipe.data.plain:
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    elif (form := chat_form(policy)) is not None:
        lines.append(f'TEMPLATE """{form.template()}"""')
    else:
        lines.append(UNKNOWN)
    system = recipe.data.system
    if system is not None and not re.search(r"\{[^{}]*\}", system):
        lines.append(f'SYSTEM """{system}"""')
    tokenizer: Any = policy.tokenizer
    for end in sorted(policy.end_ids):
        text = tokenizer.convert_ids_to_tokens(end)
        lines.append(f'PARAMETER stop "{text}"')
    return "\n".join([*lines, f"PARAMETER temperature {recipe.sample.temperature:g}", ""])


def _rendered(policy: Policy, turns: list[Turn]) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    return prompts_of(policy.tokenizer, policy.chat).chat_text(messages, opens=True)


def _around(policy: Policy, turns: list[Turn]) -> list[str]:
    """The texts before, between and after the contents."""
    text = _rendered(policy, turns)
    return re.split("|".join(re.escape(content) for _, content in turns), text)


def _go(text: str) -> str:
    """A text in a Go template: as it is, or quoted where it would be read as something else."""
    if "{{" not in text and "}}" not in text and '"""' not in text:
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{{ "{quoted}" }}}}'
