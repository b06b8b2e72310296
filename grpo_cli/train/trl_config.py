"""From our recipe to TRL's `GRPOConfig`: which of our words sets which of its fields."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from grpo_cli.distributed.sharding import set_precision, trainer_fields
from grpo_cli.errors import SetupError
from grpo_cli.recipe.arithmetic import Batching
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.rollout.vllm.calls import stop_and_ban
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
        *(
            "spatial_shapes",
            "num_tiles",
            "image_sizes",
            "token_type_ids",
            "mm_token_type_ids",
            "image_position_ids",
        ),
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


def grpo_config(
    recipe: Recipe,
    folder: Path,
    batch: Batching,
    device: torch.device,
    bf16: bool,
    banned: Collection[int] = (),
) -> GRPOConfig:
    """TRL's configuration of one run. Trackers get our own metric names; TRL's bars and tables stay off."""
    train, on_cpu = recipe.train, device.type == "cpu"
    fields: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulate,
        "steps_per_generation": batch.accumulate * batch.parts,
        # TRL knows no group of one; its advantages are replaced
        "num_generations": max(recipe.sample.group, 2),
        "num_iterations": train.inner_epochs,
        "max_completion_length": recipe.sample.max_tokens,
        # TRL counts optimizer steps, and ours are batches
        "max_steps": train.steps * train.updates,
        "learning_rate": train.lr,
        "lr_scheduler_type": scheduler(train.schedule),
        "warmup_steps": (train.lr_warmup_steps or 0) * train.updates,
        "max_grad_norm": train.max_grad_norm,
        "temperature": recipe.sample.temperature,
        "beta": 0.0,  # set around TRL's loss only: the reference is ours, not a second download
        "use_bias_correction_kl": train.kl.estimator == "k3_corrected",
        "loss_type": train.loss,
        "scale_rewards": train.scale,
        "importance_sampling_level": "sequence" if train.ratio == "sequence" else "token",
        "epsilon": train.clip.low,
        "epsilon_high": train.clip.high if train.clip.cap is None else train.clip.cap,
        # TRL's own default is the model's coefficient: a term that rows left out for a zero advantage would miss
        "router_aux_loss_coef": 0.0,
        "logging_steps": 1,
        # it would put a mean of earlier losses in a NaN's place
        "logging_nan_inf_filter": False,
        # checkpoints are ours: at the end of a batch, whole or not at all
        "save_strategy": "no",
        "report_to": list(recipe.run.track),
        "use_cpu": on_cpu,
        "bf16": bf16,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": train.seed,
        "shuffle_dataset": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,  # the loader delivers places only
        "ddp_find_unused_parameters": False,
        "remove_unused_columns": False,
        # on resume TRL would draw all earlier batches; rows are chosen in the loop
        "ignore_data_skip": True,
    }
    if recipe.sample.engine == "vllm":
        fields |= vllm_fields(recipe, banned)
    strategy = recipe.launch.strategy
    config = GRPOConfig(**(fields | trainer_fields(strategy) | train.trl))
    set_precision(config, strategy, bf16)
    return config


def vllm_fields(recipe: Recipe, banned: Collection[int] = ()) -> dict[str, Any]:
    """What TRL needs to start vLLM and to sample with it."""
    sample, vllm = recipe.sample, dict(recipe.sample.vllm)
    if vllm.get("server_base_url"):  # with a slash at its end TRL would look for the server for ever
        vllm["server_base_url"] = address(vllm)
    rules: dict[str, Any] = {
        name: getattr(sample, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")
    }
    more = stop_and_ban(sample.stop, banned)
    if more:
        rules["generation_kwargs"] = more
    return {"use_vllm": True, **rules, **{f"vllm_{name}": value for name, value in vllm.items()}}


def scheduler(name: str) -> str:
    """What transformers calls a schedule of ours."""
    return "constant_with_warmup" if name == "constant" else name
