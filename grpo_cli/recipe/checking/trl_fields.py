"""`train.trl` checked against the fields of TRL's GRPOConfig, without importing it (8 s and torch).

Names and types stand in `trl_table`, which a test compares with the installed TRL. A field that a key of the
recipe sets is refused here, with that key in the hint: two ways to say one thing would contradict each other.
"""

from __future__ import annotations

import re
from typing import Any

from grpo_cli.recipe.checking.mistakes import RecipeFinding, shown
from grpo_cli.recipe.checking.trl_table import CHOICES, FIELDS
from grpo_verifiers.names import nearest

OURS: dict[str, str] = {
    "output_dir": "run.dir",
    "run_name": "run.name",
    "report_to": "run.track",
    "save_strategy": "run.save_every",
    "save_steps": "run.save_every",
    "save_total_limit": "run.keep",
    "max_steps": "train.steps",
    "num_train_epochs": "train.steps",
    "learning_rate": "train.lr",
    "warmup_steps": "train.lr_warmup_steps",
    "max_grad_norm": "train.max_grad_norm",
    "seed": "train.seed",
    "data_seed": "train.seed",
    "num_iterations": "train.inner_epochs",
    "loss_type": "train.loss",
    "importance_sampling_level": "train.ratio",
    "scale_rewards": "train.scale",
    "epsilon": "train.clip.low",
    "epsilon_high": "train.clip.high",
    "beta": "train.kl.beta",
    "use_bias_correction_kl": "train.kl.estimator",
    "mask_truncated_completions": "train.mask_truncated",
    "multi_objective_aggregation": "train.reward_combine",
    "shuffle_dataset": "train.select",
    "reward_weights": "verify.NAME.weight",
    "per_device_train_batch_size": "sample.micro_batch",
    "gradient_accumulation_steps": "sample.micro_batch",
    "auto_find_batch_size": "sample.micro_batch",
    "generation_batch_size": "sample.prompts",
    "steps_per_generation": "sample.prompts",
    "num_generations": "sample.group",
    "max_completion_length": "sample.max_tokens",
    "temperature": "sample.temperature",
    "top_p": "sample.top_p",
    "top_k": "sample.top_k",
    "min_p": "sample.min_p",
    "repetition_penalty": "sample.repetition_penalty",
    "generation_kwargs": "sample",
    "cache_implementation": "sample.engine",
    "use_vllm": "sample.engine",
    "use_transformers_continuous_batching": "sample.engine",
    "transformers_continuous_batching_config": "sample.engine",
    "use_transformers_paged": "sample.engine",
    "num_generations_eval": "eval.samples",
    "eval_strategy": "eval.every",
    "eval_steps": "eval.every",
    "eval_delay": "eval.every",
    "eval_on_start": "eval.every",
    "per_device_eval_batch_size": "eval.samples",
    "do_eval": "eval.every",
    "model_init_kwargs": "model",
    "use_cpu": "launch.gpus",
    "local_rank": "launch.gpus",
    "deepspeed": "launch.strategy",
    "fsdp": "launch.strategy",
    "fsdp_config": "launch.strategy",
}

ALWAYS: dict[str, str] = {
    "logging_steps": "every step is recorded",
    "logging_strategy": "every step is recorded",
    "logging_first_step": "every step is recorded",
    "logging_nan_inf_filter": "it is off, or a loss that is not a number would be shown as 0",
    "log_completions": "every completion is written to `samples/` of the run",
    "disable_tqdm": "choose with `--display`",
    "remove_unused_columns": "verifiers read the columns",
    "resume_from_checkpoint": "use `grpo train --resume`",
    "enable_jit_checkpoint": "the first Ctrl-C or SIGTERM saves",
    "ignore_data_skip": "rows are chosen by `train.select`, which resumes exactly",
    "load_best_model_at_end": "the end card names the best checkpoint",
    "do_train": "use the commands `train` and `eval`",
    "do_predict": "use the commands `train` and `eval`",
    "push_to_hub": "use `grpo export`",
    "hub_model_id": "use `grpo export`",
    "hub_token": "use `grpo export`",
    "hub_strategy": "use `grpo export`",
    "hub_always_push": "use `grpo export`",
    "trust_remote_code": "code that comes with a model is never run",
    "vllm_importance_sampling_cap": "TRL calls it `vllm_importance_sampling_clip_max` now: `sample.vllm`",
}

PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list,),
    "dict": (dict,),
    "none": (type(None),),
}
WORDS = {
    "bool": "`true` or `false`",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "none": "null",
}
VLLM = "vllm_"
ADDRESS = re.compile(r"https?://[^/]")
MODES = {"vllm_mode": ["colocate", "server"]}
"""What TRL takes of a field that it calls a string."""


def check_trl(data: dict[str, Any]) -> list[RecipeFinding]:
    """What is wrong with `train.trl` and `sample.vllm`: unknown names, wrong types, fields that are ours."""
    found = []
    for name, value in _section(data, "train", "trl").items():
        path = ("train", "trl", name)
        if name in ALWAYS:
            found.append(RecipeFinding(path, f"`{name}` is not for `train.trl`", ALWAYS[name], at_key=True))
        elif name in OURS or name.startswith(VLLM):
            own = OURS.get(name, f"sample.vllm.{name.removeprefix(VLLM)}")
            found.append(RecipeFinding(path, f"`{name}` is not for `train.trl`", f"say `{own}`", at_key=True))
        elif name not in FIELDS:
            near = nearest(name, FIELDS)
            hint = f"did you mean `{near}`?" if near else "`train.trl` takes fields of TRL 1.16's GRPOConfig"
            found.append(RecipeFinding(path, f"unknown field `{name}` in `train.trl`", hint, at_key=True))
        else:
            found += _typed(path, name, value)
    known = [name.removeprefix(VLLM) for name in FIELDS if name.startswith(VLLM)]
    for name, value in _section(data, "sample", "vllm").items():
        path = ("sample", "vllm", name)
        if name not in known:
            near = nearest(name.removeprefix(VLLM), known)
            hint = f"did you mean `{near}`?" if near else f"`sample.vllm` has: {', '.join(sorted(known))}"
            found.append(RecipeFinding(path, f"unknown key `{name}` in `sample.vllm`", hint, at_key=True))
        else:
            found += _typed(path, VLLM + name, value)
            if name == "server_base_url" and isinstance(value, str) and not ADDRESS.match(value):
                said = f"`sample.vllm.server_base_url` is no address: {shown(value)}"
                found.append(RecipeFinding(path, said, "it begins with http:// or https://"))
    return found


def _typed(path: tuple[str, ...], name: str, value: object) -> list[RecipeFinding]:
    kinds = FIELDS[name].split(" | ")
    choices = CHOICES.get(name) or MODES.get(name)
    if choices and isinstance(value, str) and value not in choices:
        near = nearest(value, choices)
        hint = f"did you mean `{near}`?" if near else f"one of {', '.join(choices)}"
        return [RecipeFinding(path, f"`{'.'.join(path)}` cannot be {shown(value)}", hint)]
    fits = any(
        isinstance(value, PYTHON[kind]) and (kind == "bool" or not isinstance(value, bool)) for kind in kinds
    )
    if fits:
        return []
    wanted = " or ".join(WORDS[kind] for kind in kinds)
    return [RecipeFinding(path, f"`{'.'.join(path)}` must be {wanted}, got {shown(value)}")]


def _section(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    here: Any = data
    for key in keys:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}
