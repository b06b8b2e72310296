"""Makes TRL's `GRPOConfig` from our recipe: which of our keys sets which of its fields.

How this works. `check_hooks` compares the signatures of TRL's methods that `trainer.py` overrides with those it was built for.
`grpo_config` makes the fields of one run; `train.trl` of the recipe is merged over them last. `refuse_settings` asks TRL and
transformers before a run begins whether they accept them. Trackers get our own metric names; TRL's bars and tables stay off.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from copy import copy
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import GradientAccumulationPlugin, TorchDynamoPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from transformers import Trainer as TransformersTrainer
from transformers import TrainingArguments, get_scheduler
from transformers.training_args import OptimizerNames
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad

from grpo_cli.distributed.sharded import trainer_fields
from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.loading.failures import loading_failures, sentence
from grpo_cli.recipe.arithmetic import Batching, batching
from grpo_cli.recipe.sections.course import keeps_whole
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.vllm.engine import stop_and_ban
from grpo_cli.rollout.vllm.server import address

# the hooks of TRL 1.16 that trainer.py overrides or calls, with the parameters it relies on
HOOKED = {
    "_generate_and_score_completions": ["self", "inputs"],
    "_generate": ["self", "prompts"],
    "_generate_single_turn": [
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images",
    ],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_compute_loss": ["self", "model", "inputs"],
    "_get_per_token_logps_and_entropies": [
        *("self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy"),
        *("compute_aux_loss", "pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask"),
        *("spatial_shapes", "num_tiles", "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
    ],
    "_get_grad_norm": ["self", "model", "grad_norm"],
    "create_accelerator_and_postprocess": ["self"],
    "_load_optimizer_and_scheduler": ["self", "checkpoint"],
    "_load_from_checkpoint": ["self", "resume_from_checkpoint", "model"],
    "_save_optimizer_and_scheduler": ["self", "output_dir"],
    "save_model": ["self", "output_dir", "_internal_call"],
    "_save_checkpoint": ["self", "model", "trial"],
    "log": ["self", "logs", "start_time"],
}


def check_hooks() -> None:
    """Raises SetupError if the installed TRL does not have the methods this project hooks into."""
    import trl

    for name, wanted in HOOKED.items():
        method = getattr(GRPOTrainer, name, None)
        got = list(inspect.signature(method).parameters) if method else []
        if got != wanted:
            raise SetupError(
                f"trl {trl.__version__} is not the one this was built for: `{name}` takes ({', '.join(got)})",
                hint="pip install 'trl>=1.16,<1.17'",
            )


HINTS = {
    "lr_scheduler_type": "what this schedule needs stands in `train.trl.lr_scheduler_kwargs`",
    "lr_scheduler_kwargs": "keys that `train.schedule`, or `train.trl.lr_scheduler_type`, takes",
    "optim_args": "`name=value`, with a comma between two of them; Adam's are `adam_beta1`, `adam_beta2` and `adam_epsilon`",
}
ADAM = {"adam_beta1", "adam_beta2", "adam_epsilon"}
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
MODEL_MADE = ("galore", "apollo", "lomo", "adalomo")
"""Prefixes of the names of optimizers that are built from a model's layers."""


def refuse_settings(recipe: Recipe, processes: int, device: torch.device) -> None:
    """Build what training builds from `train.trl`, on a model with two parameters.

    Raises:
        RecipeError: a field that a library does not take; the place names it.
        SetupError: an incompatible version of TRL, or no trainer can be made even without `train.trl`.
    """
    check_hooks()
    # distributed strategies change the process, so they are checked elsewhere
    plain = recipe.model_copy(update={"launch": recipe.launch.model_copy(update={"strategy": "ddp"})})
    trl = recipe.train.trl
    batch = batching(recipe, 0, processes, on_gpu=device.type == "cuda")

    def refused(**fields: object) -> Exception | None:
        train = plain.train.model_copy(update={"trl": fields})
        try:
            config = grpo_config(plain.model_copy(update={"train": train}), Path(), batch, device, None)
            _dry_run(config, fields)
        except Exception as err:  # noqa: BLE001 - returned: libraries raise every class here
            return err
        return None

    if (error := refused(**trl)) is None:
        return
    guilty = [name for name in trl if refused(**{k: v for k, v in trl.items() if k != name}) is None]
    if not guilty and refused() is not None:
        with loading_failures("no trainer can be made of this recipe"):
            raise error
    names = guilty or list(trl)
    raise RecipeError(
        f"training does not take it: {sentence(error)}",
        place=", ".join(f"train.trl.{name}" for name in names),
        hint=next((HINTS[name] for name in names if name in HINTS), "left out, it has the library's own value"),
    ) from error


def _dry_run(config: GRPOConfig, stated: Collection[str]) -> None:
    """Make the optimizer, the schedule, and the other objects that read the settings in the first step. Errors of the
    libraries pass through.

    `stated`: the names in `train.trl`.
    """
    toy = torch.nn.Linear(1, 1)
    if not config.optim.startswith(MODEL_MADE):
        kind, more = TransformersTrainer.get_optimizer_cls_and_kwargs(config, toy)
        _refuse_unread(config, stated)
        optimizer = kind(toy.parameters(), **more)
        steps, warmup = config.max_steps, config.get_warmup_steps(config.max_steps)
        kwargs = config.lr_scheduler_kwargs
        schedule = get_scheduler(config.lr_scheduler_type, optimizer, warmup, steps, kwargs)
        for at in (0, warmup, (warmup + steps) // 2, steps):
            for rate in getattr(schedule, "lr_lambdas", ()):
                rate(at)
    pad([torch.ones(1)], pad_to_multiple_of=config.pad_to_multiple_of)
    if (noise := config.neftune_noise_alpha) is not None:
        torch.empty(1).uniform_(-noise, noise)
    if config.torch_compile:
        TorchDynamoPlugin(config.torch_compile_backend)
        torch.compile(toy, mode=config.torch_compile_mode, backend=config.torch_compile_backend or "inductor")
    if config.gradient_checkpointing_kwargs is not None:
        recomputes: dict[str, Any] = {"use_reentrant": False, **config.gradient_checkpointing_kwargs}
        checkpoint(toy, torch.ones(1), **recomputes)
    torch.quantile(torch.ones(1), 1 - config.top_entropy_quantile)
    if config.sync_ref_model:
        raise ValueError("the reference stays the model that the run began with: it is not synchronised")
    parts = config.accelerator_config
    if parts.dispatch_batches:
        raise ValueError("`dispatch_batches` sends tensors, and the loader delivers places of rows")
    accumulation = dict(parts.gradient_accumulation_kwargs or {})
    if "num_steps" in accumulation:
        raise ValueError("`num_steps` follows from `sample.micro_batch`")
    GradientAccumulationPlugin(**accumulation, num_steps=1)
    if config.dataloader_num_workers and config.dataloader_prefetch_factor == 0:
        raise ValueError("a worker cannot load 0 batches ahead")
    DataLoader(
        [0],  # type: ignore[arg-type]
        num_workers=config.dataloader_num_workers,
        prefetch_factor=config.dataloader_prefetch_factor,
        persistent_workers=config.dataloader_persistent_workers,
        multiprocessing_context=config.dataloader_multiprocessing_context,
    )


def _refuse_unread(config: GRPOConfig, stated: Collection[str]) -> None:
    """Raise ValueError for an argument that this optimizer does not read; transformers silently drops it."""

    def made(**changed: object) -> dict[str, Any]:
        other = copy(config)
        for name, value in changed.items():
            setattr(other, name, value)
        return dict(TransformersTrainer.get_optimizer_cls_and_kwargs(other, torch.nn.Linear(1, 1))[1])

    optim = OptimizerNames(config.optim).value
    for name in ADAM & set(stated):
        if made(**{name: 0.5}) == made(**{name: 0.25}):
            raise ValueError(f"`{optim}` reads no `{name}`")
    for pair in (config.optim_args or "").replace(" ", "").split(",") if config.optim_args else ():
        name, value = pair.split("=")
        read = made().get(name)
        if isinstance(read, bool) and TRUTH.get(value.lower()) is not read:
            raise ValueError(f"`{optim}` reads `{pair}` as {str(read).lower()}")
        try:
            is_read = made(optim_args=f"{name}=no-such-value") != made(optim_args=None)
        except Exception:  # noqa: BLE001 - it asked for a number, or for a name of its own
            is_read = True
        # the parameter groups set weight decay from `train.trl.weight_decay`
        if not is_read or name == "weight_decay":
            raise ValueError(f"`{optim}` reads no `{name}` of it")


UNBOUNDED = 1e30
"""Bound of a ratio that never binds."""


def grpo_config(
    recipe: Recipe,
    folder: Path,
    batch: Batching,
    device: torch.device,
    autocast: torch.dtype | None,
    banned: Collection[int] = (),
) -> GRPOConfig:
    """TRL's configuration of one run, whose products run in `autocast`. Trackers get our own metric names; TRL's bars and tables stay off."""
    train, on_cpu = recipe.train, device.type == "cpu"
    # a bound of our own (`algorithm/loss.py`) is in TRL's way
    bounded = train.ratio_clip == "ratio" and train.loss != "gmpo"
    low, high = (train.clip.low, train.clip.high) if bounded else (UNBOUNDED, UNBOUNDED)
    fields: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulate,
        "steps_per_generation": batch.accumulate * batch.parts,
        # TRL takes no group of one; its advantages are replaced
        "num_generations": max(recipe.sample.group, 2),
        "num_iterations": train.inner_epochs,
        "max_completion_length": recipe.sample.max_tokens,
        # TRL counts optimizer steps; our steps are batches
        "max_steps": train.steps * train.updates,
        "learning_rate": train.lr,
        "lr_scheduler_type": scheduler(train.schedule),
        "warmup_steps": (train.lr_warmup_steps or 0) * train.updates,
        "max_grad_norm": train.max_grad_norm,
        "temperature": recipe.sample.temperature,
        "beta": 0.0,  # set only around TRL's loss: we hold the reference, so TRL need not load a second model
        "use_bias_correction_kl": train.kl.estimator == "k3_corrected",
        "loss_type": "grpo" if train.loss == "gmpo" else train.loss,
        "scale_rewards": "none" if train.scale == "mean" else train.scale,  # its advantages are replaced
        "importance_sampling_level": "sequence" if train.ratio == "sequence" else "token",
        "epsilon": low,
        "epsilon_high": high if train.clip.cap is None else train.clip.cap,
        # TRL's default is the model's coefficient; rows dropped for a zero advantage would be missing from that term
        "router_aux_loss_coef": 0.0,
        "logging_steps": 1,
        # transformers' filter would replace a NaN by a mean of earlier losses
        "logging_nan_inf_filter": False,
        # checkpoints are ours: at the end of a batch, whole or not at all
        "save_strategy": "no",
        "report_to": list(recipe.run.track),
        "use_cpu": on_cpu,
        **amp_fields(autocast),
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": train.seed,
        "shuffle_dataset": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,  # the loader delivers only indices
        "ddp_find_unused_parameters": False,
        "remove_unused_columns": False,
        # on resume TRL would draw all earlier batches; rows are chosen in the loop
        "ignore_data_skip": True,
    }
    if recipe.sample.engine_kind.through_trl:
        fields |= vllm_fields(recipe, banned)
    strategy = recipe.launch.strategy
    own = dict(train.trl)
    if train.recomputes != "no":
        # ours makes layers again around each loss (`train/packed/recompute.py`); shards want that of their library
        own["gradient_checkpointing"] = not keeps_whole(strategy)
    config = GRPOConfig(**(fields | trainer_fields(strategy) | own))
    if strategy == "fsdp2" and autocast is not None:
        # parameters travel and compute in half precision; left to itself accelerate also sums gradients and hands out log-probs in it
        policy = MixedPrecisionPolicy(param_dtype=autocast, reduce_dtype=torch.float32)
        config.fsdp_plugin_args["mixed_precision_policy"] = policy
    return config


def amp_fields(autocast: torch.dtype | None) -> dict[str, bool]:
    """The settings of transformers for products in this type; of float16 gradients are scaled."""
    return {"bf16": autocast is torch.bfloat16, "fp16": autocast is torch.float16}


def autocast_of(args: TrainingArguments) -> torch.dtype | None:
    """The type that products run in under these settings; the weights' own where None."""
    return torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None


def vllm_fields(recipe: Recipe, banned: Collection[int] = ()) -> dict[str, Any]:
    """TRL's fields to start vLLM and to sample with it."""
    sample, vllm = recipe.sample, dict(recipe.sample.vllm)
    if vllm.get("server_base_url"):  # with a trailing slash TRL would search for the server forever
        vllm["server_base_url"] = address(vllm)
    rules: dict[str, Any] = {name: getattr(sample, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
    more = stop_and_ban(sample.stop, banned)
    if more:
        rules["generation_kwargs"] = more
    return {"use_vllm": True, **rules, **{f"vllm_{name}": value for name, value in vllm.items()}}


def scheduler(name: str) -> str:
    """transformers' name of our schedule."""
    return "constant_with_warmup" if name == "constant" else name
