"""Packages that a recipe needs beyond those that come with the program, found without importing any of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from grpo_cli.errors import SetupError
from grpo_cli.policy.loading.files import BUILT_IN
from grpo_cli.recipe.sections.course import DEEPSPEED
from grpo_cli.recipe.sections.recipe import Model, Recipe


@dataclass(frozen=True, slots=True)
class PackageNeed:
    """A package: its module name, its distribution name, and the recipe setting that needs it."""

    module: str
    install: str
    why: str
    extra: str = ""
    """The extra of this program that installs it, where there is one."""
    otherwise: str = ""
    """What to set in the recipe so that the package is not needed."""

    def is_met(self) -> bool:
        """Whether it is installed."""
        return _is_here(self.module)

    def require(self) -> None:
        """Raises SetupError where it is not installed."""
        if self.is_met():
            return
        install = f"'grpo-cli[{self.extra}]'" if self.extra else self.install
        raise SetupError(
            f"{self.why} needs the package `{self.install}`, which is not installed",
            hint=f"pip install {install}" + (f", or {self.otherwise}" if self.otherwise else ""),
        )


OPTIMIZERS = {
    r"galore_.*": ("galore_torch", "galore-torch"),
    r"apollo_.*": ("apollo_torch", "apollo-torch"),
    r"(ada)?lomo": ("lomo_optim", "lomo-optim"),
    r"grokadamw": ("grokadamw", "grokadamw"),
    r"schedule_free_.*": ("schedulefree", "schedulefree"),
    r"stable_adamw": ("optimi", "torch-optimi"),
    r"adamw_torch_[48]bit": ("torchao", "torchao"),
    r"adamw_torch_xla": ("torch_xla", "torch-xla"),
    r"adamw_torch_npu_fused": ("torch_npu", "torch-npu"),
    r"adamw_apex_fused": ("apex", "apex"),
    r"adamw_anyprecision": ("torchdistx", "torchdistx"),
    r".*(bnb|8bit|paged_|lion_32bit|ademamix).*": ("bitsandbytes", "bitsandbytes"),
}
"""Patterns of `train.trl.optim`, each with a module and a package; the first pattern that matches counts."""

TRACKERS = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "mlflow": ("mlflow",),
}
"""The trackers of `run.track`, each an extra of that name, with the modules of which one must be there."""

QUANTIZERS = {
    "gptq": (("optimum", "optimum"), ("gptqmodel", "gptqmodel")),
    "awq": (("gptqmodel", "gptqmodel"),),
    "bitsandbytes": (("bitsandbytes", "bitsandbytes"),),
    "aqlm": (("aqlm", "aqlm"),),
    "quanto": (("optimum.quanto", "optimum-quanto"),),
    "quark": (("quark", "amd-quark"),),
    "eetq": (("eetq", "eetq"),),
    "higgs": (("flute", "flute-kernel"),),
    "hqq": (("hqq", "hqq"),),
    "compressed-tensors": (("compressed_tensors", "compressed-tensors"),),
    "fbgemm_fp8": (("fbgemm_gpu", "fbgemm-gpu"),),
    "torchao": (("torchao", "torchao"),),
    "vptq": (("vptq", "vptq"),),
    "spqr": (("spqr_quant", "spqr_quant"),),
    "auto-round": (("auto_round", "auto-round"),),
    "fp_quant": (("fp_quant", "fp_quant"),),
}
"""The package that transformers needs for each quantisation method; other methods need a GPU and no package."""


def model_needs(model: Model) -> Iterator[PackageNeed]:
    """What the section `model` asks for."""
    if model.lora is not None:
        yield PackageNeed("peft", "peft", "`model.lora`")
    if model.load_in_4bit:
        yield PackageNeed("bitsandbytes", "bitsandbytes", "`model.load_in_4bit`")
    if model.attention in ("flash_attention_2", "flash_attention_3"):
        yield PackageNeed("flash_attn", "flash-attn", f"`model.attention: {model.attention}`")
    # transformers reads the header with the package `gguf`, and fails without it after the download
    if model.path.endswith(".gguf") or model.gguf_file or model.path in BUILT_IN:
        yield PackageNeed("gguf", "gguf", "reading a .gguf file")


def trainer_needs(recipe: Recipe) -> Iterator[PackageNeed]:
    """What training asks for."""
    trl = recipe.train.trl
    optim = trl.get("optim")
    if isinstance(optim, str):
        # in the table's order: the last pattern fits names that earlier ones mean
        for pattern, (module, name) in OPTIMIZERS.items():
            if re.fullmatch(pattern, optim):
                yield PackageNeed(module, name, f"`train.trl.optim: {optim}`")
                break
    # from TRL's own fields, which pass through us unread
    if trl.get("use_liger_kernel") or trl.get("use_liger_loss"):
        yield PackageNeed("liger_kernel", "liger-kernel", "the liger kernel")
    if recipe.launch.strategy in DEEPSPEED:
        strategy, otherwise = f"`launch.strategy: {recipe.launch.strategy}`", "say `launch.strategy: fsdp2`"
        yield PackageNeed("deepspeed", "deepspeed", strategy, "deepspeed", otherwise)
    for name in recipe.run.track:
        module = next(filter(_is_here, TRACKERS[name]), name)
        # of several modules the one that is here, so that the need is met
        yield PackageNeed(module, name, f"`run.track: [{name}]`", name)


def _is_here(module: str) -> bool:
    try:
        # found and not imported: some of them take seconds, or a GPU
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
