"""What other trainers call the keys of a recipe: one table, for every section and for `grpo init --from`.

`OURS` holds fields of TRL's GRPOConfig, on which open-r1 and unsloth build, `OTHERS` the words of verl, axolotl and vLLM. A
name that is a key of the section it stands in is never looked up here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path as FilePath

from grpo_verifiers.names import nearest

_TRL = json.loads((FilePath(__file__).parent / "trl_fields.json").read_text(encoding="utf-8"))
FIELDS: dict[str, str] = _TRL["fields"]
"""Fields of TRL's GRPOConfig with the kinds of value each takes; `make trl-table` writes the file, a test compares it."""
CHOICES: dict[str, list[str]] = _TRL["choices"]
"""Values of those fields that take a name."""

OURS: dict[str, str] = {
    "output_dir": "run.dir",
    "run_name": "run.name",
    "report_to": "run.track",
    "save_strategy": "run.save_every",
    "save_steps": "run.save_every",
    "save_total_limit": "run.keep",
    "max_steps": "train.steps",
    "num_train_epochs": "train.epochs",
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
    "steps_per_generation": "train.mini_batches",
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
"""Fields of TRL's GRPOConfig that a key of the recipe sets."""

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
"""Fields of TRL's GRPOConfig that need no key, and why."""

OTHERS: dict[str, str] = {
    # sampling
    "n": "sample.group",
    "rollout_n": "sample.group",
    "num_samples": "sample.group",
    "num_return_sequences": "sample.group",
    "group_size": "sample.group",
    "num_rollouts": "sample.group",
    "rollouts_per_example": "sample.group",
    "samples_per_prompt": "sample.group",
    "n_samples_per_prompt": "sample.group",
    "train_batch_size": "sample.prompts",
    "rollout_batch_size": "sample.prompts",
    "prompts_per_step": "sample.prompts",
    "batch_size": "sample.prompts",
    "max_new_tokens": "sample.max_tokens",
    "max_response_length": "sample.max_tokens",
    "stop_strings": "sample.stop",
    "stop_sequences": "sample.stop",
    "stop_words": "sample.stop",
    "stop_texts": "sample.stop",
    "bad_words": "sample.ban",
    "bad_words_ids": "sample.ban",
    "suppress_tokens": "sample.ban",
    "banned_tokens": "sample.ban",
    "max_seq_length": "sample.max_tokens",
    "response_length": "sample.max_tokens",
    "ppo_micro_batch_size": "sample.micro_batch",
    "ppo_micro_batch_size_per_gpu": "sample.micro_batch",
    "micro_batch_size": "sample.micro_batch",
    "use_vllm": "sample.engine",
    "rollout_engine": "sample.engine",
    "fast_inference": "sample.engine",
    # method
    "epochs": "train.epochs",
    "total_epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "total_training_steps": "train.steps",
    "lr_scheduler": "train.schedule",
    "warmup_steps": "train.lr_warmup_steps",
    "warmup_ratio": "train.lr_warmup_steps",
    "lr_warmup_steps_ratio": "train.lr_warmup_steps",
    "gradient_clipping": "train.max_grad_norm",
    "grad_clip": "train.max_grad_norm",
    "clip_grad": "train.max_grad_norm",
    "ppo_epochs": "train.inner_epochs",
    "clip_ratio": "train.clip.low",
    "clip_ratio_low": "train.clip.low",
    "clip_ratio_high": "train.clip.high",
    "clip_ratio_c": "train.clip.cap",
    "kl_coef": "train.kl.beta",
    "kl_loss_coef": "train.kl.beta",
    "kl_beta": "train.kl.beta",
    "use_kl_loss": "train.kl.beta",
    "kl_loss_type": "train.kl.estimator",
    "kl_penalty": "train.kl.estimator",
    "loss_agg_mode": "train.loss",
    "adv_estimator": "train.algorithm",
    "norm_adv_by_std_in_grpo": "train.scale",
    "overlong_buffer": "train.overlong",
    "filter_groups": "train.dead_groups",
    "ppo_mini_batch_size": "train.mini_batches",
    "num_mini_batches": "train.mini_batches",
    # preferences
    "rounds": "train.steps",
    "simpo_gamma": "prefer.gamma",
    "rpo_alpha": "prefer.sft",
    "pref_beta": "prefer.beta",
    "pairs_per_prompt": "prefer.pairs_a_row",
    # model
    "model_name_or_path": "model.path",
    "pretrained_model_name_or_path": "model.path",
    "model_name": "model.path",
    "base_model": "model.path",
    "tokenizer_name_or_path": "model.tokenizer",
    "tokenizer_name": "model.tokenizer",
    "tokenizer_path": "model.tokenizer",
    "custom_chat_template": "model.chat_template",
    "chat_template_path": "model.chat_template",
    "chat_template_jinja": "model.chat_template",
    "chat_template_kwargs": "model.template_args",
    "chat_template_args": "model.template_args",
    "apply_chat_template_kwargs": "model.template_args",
    "enable_thinking": "model.template_args",
    "thinking": "model.template_args",
    "assistant_prefix": "data.prefill",
    "assistant_prefill": "data.prefill",
    "response_prefix": "data.prefill",
    "continue_final_message": "data.prefill",
    "apply_chat_template": "data.plain",
    "model_revision": "model.revision",
    "torch_dtype": "model.dtype",
    "attn_implementation": "model.attention",
    "flash_attention": "model.attention",
    "lora_r": "model.lora.r",
    "lora_rank": "model.lora.r",
    "lora_alpha": "model.lora.alpha",
    "lora_dropout": "model.lora.dropout",
    "lora_target_modules": "model.lora.targets",
    "lora_target_linear": "model.lora.targets",
    "target_modules": "model.lora.targets",
    "use_peft": "model.lora",
    "adapter": "model.lora",
    "peft_config": "model.lora",
    # data
    "dataset_name": "data.train",
    "datasets": "data.train",
    "dataset": "data.train",
    "train_files": "data.train",
    "val_files": "data.eval",
    "test_datasets": "data.eval",
    "eval_dataset": "data.eval",
    "prompt_key": "data.prompt",
    "prompt_column": "data.prompt",
    "dataset_prompt_column": "data.prompt",
    "system_prompt": "data.system",
    "max_prompt_length": "data.max_prompt_tokens",
    "filter_overlong_prompts": "data.max_prompt_tokens",
    "dataset_train_split": "data.train.options.split",
    "dataset_config": "data.train.options.config",
    # rewards
    "reward_funcs": "verify",
    "reward_functions": "verify",
    "custom_reward_function": "verify",
    "compute_score": "verify",
    # run
    "project_name": "run.track",
    "wandb_project": "run.track",
    "logger": "run.track",
    "experiment_name": "run.name",
    "default_local_dir": "run.dir",
    "save_freq": "run.save_every",
    "test_freq": "eval.every",
    "eval_freq": "eval.every",
    "val_before_train": "eval.every",
    "max_actor_ckpt_to_keep": "run.keep",
    "n_gpus_per_node": "launch.gpus",
    "nproc_per_node": "launch.gpus",
    "num_gpus": "launch.gpus",
    "nnodes": "launch.nodes",
    "num_machines": "launch.nodes",
    "main_process_ip": "launch.rendezvous",
}


METHODS: dict[str, str] = {
    "gdpo": "GDPO is `train.reward_combine: normalise_then_sum`",
    "cppo": "CPPO is `train.prune: {keep: N, by: advantage}`",
    "pods": "PODS is `train.prune: {keep: N, by: variance}`",
    "vapo": "VAPO's parts are `algorithm: ppo` with `train.critic: {lambda: adaptive, positive: 0.1}`",
    "gae": "GAE belongs to `algorithm: ppo`",
    "a2c": "with a critic there is `algorithm: ppo`",
    "actor_critic": "with a critic there is `algorithm: ppo`",
    "reinforce": "without a critic there are `rloo` and `reinforce_pp`",
    "reinforce_plus_plus": "did you mean `reinforce_pp`?",
    "reinforce_plus_plus_baseline": "did you mean `reinforce_pp`?",
    "reinforce_pp_baseline": "did you mean `reinforce_pp`?",
    "pass_at_k": "pass@k is measured (`eval.k`), not trained on",
    "sft": "say `train.method: sft`",
    "rl": "say `train.method: rl`",
    "prefer": "say `train.method: prefer`",
    "raft": "right samples of a run are demonstrations: `train.method: sft` with `sft.data: run:NAME`",
    "rft": "right samples of a run are demonstrations: `train.method: sft` with `sft.data: run:NAME`",
    "star": "right samples of a run are demonstrations: `train.method: sft` with `sft.data: run:NAME`",
    "sigmoid": "did you mean `dpo`?",
}
"""What papers and other trainers call a method, and what it is here."""

NOT_HERE = ("apo", "cpo", "gpo", "po", "rpo", "spo", "tpo")
"""Methods whose names are only a letter away from one of ours."""


def same_letters(name: str, methods: Iterable[str]) -> str | None:
    """The method that a name spells with other signs between its letters."""
    return {_letters(method): method for method in methods}.get(_letters(name))


def misspelt(name: str, methods: Iterable[str]) -> str | None:
    """The method that a name is a slip of; None where it may be another method: these names are so short that one letter is
    another paper."""
    folded = {_letters(method): method for method in methods}
    said = _letters(name)
    if said in NOT_HERE or said in map(_letters, METHODS):
        return None
    for own, method in folded.items():
        is_swapped = len(said) > 3 and sorted(said) == sorted(own)
        short, long = sorted((said, own), key=len)
        is_off_by_one = len(short) > 2 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
        if is_swapped or (is_off_by_one and len(long) - len(short) == 1):
            return method
        if len(said) > 4 and own.startswith(said):
            return method
    # long names stand further apart
    return nearest(name, [method for method in folded.values() if len(method) > 7], 0.8) if len(said) > 6 else None


def method_elsewhere(name: str) -> str:
    """What a method of the field is here, where it is something else than a name; empty where that is not known."""
    return METHODS.get(re.sub(r"[\W_]+", "_", name.lower().replace("++", "_plus_plus")), "")


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower().replace("++", "pp"))


INSIDE: dict[str, str] = {
    "stop": "sample.stop",
    "stop_token_ids": "sample.stop",
    "eos_token_id": "sample.stop",
    "do_sample": "sample.temperature",
    "dtype": "model.dtype",
}
"""Names inside a mapping of TRL's (`generation_kwargs`, `model_init_kwargs`) that mean something else outside of it."""


def counterpart(name: str, value: object = None) -> str:
    """The key of a recipe that means what another trainer calls `name`, as a dotted path; a field that only TRL has is under
    `train.trl`; empty where there is none. Of a mapping whose own names all have keys, those, with "` and `" between them."""
    name = name.replace("-", "_")
    if name in OTHERS or name in OURS:
        within = [INSIDE.get(one) or counterpart(one) for one in value] if isinstance(value, dict) else []
        apart = dict.fromkeys(key for key in within if not key.startswith("train.trl."))
        return "` and `".join(apart) if within and all(apart) else OTHERS.get(name) or OURS[name]
    if name in FIELDS and name not in ALWAYS:
        return f"train.trl.{name}"
    return ""


def why_none(name: str) -> str:
    """Why a name of TRL's has no key here, where that is known."""
    return ALWAYS.get(name.replace("-", "_"), "")
