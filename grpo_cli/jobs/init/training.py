"""How a configuration trains, as the recipe says it: batch, length, schedule and loss."""

from __future__ import annotations

from grpo_cli.jobs.init.converted import Config, ConvertedRecipe, take


def put_batch(rest: Config, made: ConvertedRecipe) -> None:
    """Prompts a step and the micro-batch, from completions a step and the size of a group."""
    group = int(rest.get("num_generations", 8))
    micro = int(take(rest, "per_device_train_batch_size", "micro_batch_size") or 8)
    together = micro * int(take(rest, "gradient_accumulation_steps") or 1)
    prompts, over = divmod(together, group)
    made.put("sample.prompts", max(1, prompts))
    if over:
        made.left.append(
            (
                "per_device_train_batch_size",
                micro,
                f"{together} completions a step are no whole groups of {group}",
            )
        )
    elif micro < together:
        made.put("sample.micro_batch", micro)


def put_length(rest: Config, made: ConvertedRecipe) -> None:
    """Steps or epochs, and those of the warm-up."""
    steps, epochs = take(rest, "max_steps"), take(rest, "num_train_epochs", "num_epochs", "epochs")
    if steps is not None and int(steps) > 0:
        made.put("train.steps", int(steps))
    else:
        made.put("train.epochs", float(epochs if epochs is not None else 3))
    ratio = take(rest, "warmup_ratio")
    if ratio and "steps" in made.recipe["train"]:
        made.put("train.lr_warmup_steps", round(float(ratio) * int(steps)))
    elif ratio:
        made.left.append(("warmup_ratio", ratio, "say `train.lr_warmup_steps`, which counts steps"))


SCHEDULES = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant",
    "constant_with_warmup": "constant",
}
SCALES: dict[object, str] = {True: "group", False: "none", "group": "group", "batch": "batch", "none": "none"}


def put_method(rest: Config, made: ConvertedRecipe) -> None:
    """Clipping, KL, schedule, scale and ratio."""
    rest.setdefault("loss_type", "dapo")
    low, high = float(take(rest, "epsilon") or 0.2), take(rest, "epsilon_high")
    made.put("train.clip", {"low": low, "high": float(high) if high is not None else low})
    beta, corrects = float(take(rest, "beta") or 0), take(rest, "use_bias_correction_kl")
    if beta:
        made.put("train.kl", {"beta": beta, "estimator": "k3_corrected" if corrects else "k3"})
        made.put("train.dead_groups", "keep")  # their answers pay the KL too
    schedule = take(rest, "lr_scheduler_type", "lr_scheduler")
    if schedule in SCHEDULES:
        made.put("train.schedule", SCHEDULES[schedule])
    elif schedule:
        made.put("train.trl.lr_scheduler_type", schedule)
    scale = take(rest, "scale_rewards")
    if scale is not None:
        made.put("train.scale", SCALES.get(scale, scale))
    level = take(rest, "importance_sampling_level")
    if level is not None:
        made.put("train.ratio", level)
    if made.recipe["train"].get("ratio") == "sequence" and rest["loss_type"] in ("dapo", "bnpo"):
        made.left.append(
            ("loss_type", rest.pop("loss_type"), "GSPO averages each answer by itself: `loss: grpo`")
        )
        made.put("train.loss", "grpo")
