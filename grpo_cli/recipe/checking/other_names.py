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


def _by_name(names_of: dict[str, str]) -> dict[str, str]:
    return {name: key for key, names in names_of.items() for name in names.split()}


OURS = _by_name(
    {
        "run.dir": "output_dir",
        "run.name": "run_name",
        "run.track": "report_to",
        "run.save_every": "save_strategy save_steps",
        "run.keep": "save_total_limit",
        "train.steps": "max_steps",
        "train.epochs": "num_train_epochs",
        "train.lr": "learning_rate",
        "train.lr_warmup_steps": "warmup_steps",
        "train.max_grad_norm": "max_grad_norm",
        "train.seed": "seed data_seed",
        "train.inner_epochs": "num_iterations",
        "train.loss": "loss_type",
        "train.ratio": "importance_sampling_level",
        "train.scale": "scale_rewards",
        "train.clip.low": "epsilon",
        "train.clip.high": "epsilon_high",
        "train.kl.beta": "beta",
        "train.kl.estimator": "use_bias_correction_kl",
        "train.mask_truncated": "mask_truncated_completions",
        "train.reward_combine": "multi_objective_aggregation",
        "train.select": "shuffle_dataset",
        "verify.NAME.weight": "reward_weights",
        "sample.micro_batch": "per_device_train_batch_size gradient_accumulation_steps auto_find_batch_size",
        "sample.prompts": "generation_batch_size",
        "train.mini_batches": "steps_per_generation",
        "sample.group": "num_generations",
        "sample.max_tokens": "max_completion_length",
        "sample.temperature": "temperature",
        "sample.top_p": "top_p",
        "sample.top_k": "top_k",
        "sample.min_p": "min_p",
        "sample.repetition_penalty": "repetition_penalty",
        "sample": "generation_kwargs",
        "sample.engine": (
            "cache_implementation use_vllm use_transformers_continuous_batching transformers_continuous_batching_config "
            "use_transformers_paged"
        ),
        "eval.samples": "num_generations_eval per_device_eval_batch_size",
        "eval.every": "eval_strategy eval_steps eval_delay eval_on_start do_eval",
        "model": "model_init_kwargs",
        "launch.gpus": "use_cpu local_rank",
        "launch.strategy": "deepspeed fsdp fsdp_config",
    }
)
"""Fields of TRL's GRPOConfig that a key of the recipe sets."""

ALWAYS = _by_name(
    {
        "every step is recorded": "logging_steps logging_strategy logging_first_step",
        "it is off, or a loss that is not a number would be shown as 0": "logging_nan_inf_filter",
        "every completion is written to `samples/` of the run": "log_completions",
        "choose with `--display`": "disable_tqdm",
        "verifiers read the columns": "remove_unused_columns",
        "use `grpo train --resume`": "resume_from_checkpoint",
        "the first Ctrl-C or SIGTERM saves": "enable_jit_checkpoint",
        "rows are chosen by `train.select`, which resumes exactly": "ignore_data_skip",
        "the end card names the best checkpoint": "load_best_model_at_end",
        "use the commands `train` and `eval`": "do_train do_predict",
        "use `grpo export`": "push_to_hub hub_model_id hub_token hub_strategy hub_always_push",
        "code that comes with a model is never run": "trust_remote_code",
        "ranks add up their gradients without torch's DDP": "ddp_find_unused_parameters ddp_bucket_cap_mb"
        " ddp_broadcast_buffers ddp_static_graph",
        "ranks speak NCCL on GPUs and gloo on a CPU": "ddp_backend",
        "`stop.lost_s` is how long a silent machine is waited for": "ddp_timeout",
        "TRL calls it `vllm_importance_sampling_clip_max` now: `sample.vllm`": "vllm_importance_sampling_cap",
    }
)
"""Fields of TRL's GRPOConfig that need no key, and why."""

OTHERS = _by_name(
    {
        "sample.group": (
            "n rollout_n num_samples num_return_sequences group_size num_rollouts rollouts_per_example "
            "samples_per_prompt n_samples_per_prompt"
        ),
        "sample.prompts": "train_batch_size rollout_batch_size prompts_per_step batch_size",
        "sample.max_tokens": "max_new_tokens max_response_length max_seq_length response_length",
        "sample.stop": "stop_strings stop_sequences stop_words stop_texts",
        "sample.ban": "bad_words bad_words_ids suppress_tokens banned_tokens",
        "sample.micro_batch": "ppo_micro_batch_size ppo_micro_batch_size_per_gpu micro_batch_size",
        "sample.engine": "use_vllm rollout_engine fast_inference",
        "train.epochs": "epochs total_epochs num_epochs",
        "train.steps": "total_training_steps rounds",
        "train.schedule": "lr_scheduler",
        "train.lr_warmup_steps": "warmup_steps warmup_ratio lr_warmup_steps_ratio",
        "train.max_grad_norm": "gradient_clipping grad_clip clip_grad",
        "train.inner_epochs": "ppo_epochs",
        "train.clip.low": "clip_ratio clip_ratio_low",
        "train.clip.high": "clip_ratio_high",
        "train.clip.cap": "clip_ratio_c",
        "train.kl.beta": "kl_coef kl_loss_coef kl_beta use_kl_loss",
        "train.kl.estimator": "kl_loss_type kl_penalty",
        "train.loss": "loss_agg_mode",
        "train.algorithm": "adv_estimator",
        "train.scale": "norm_adv_by_std_in_grpo",
        "train.overlong": "overlong_buffer",
        "train.dead_groups": "filter_groups",
        "train.mini_batches": "ppo_mini_batch_size num_mini_batches",
        "prefer.gamma": "simpo_gamma",
        "prefer.sft": "rpo_alpha",
        "prefer.beta": "pref_beta",
        "prefer.pairs_a_row": "pairs_per_prompt",
        "model.path": "model_name_or_path pretrained_model_name_or_path model_name base_model",
        "model.tokenizer": "tokenizer_name_or_path tokenizer_name tokenizer_path",
        "model.chat_template": "custom_chat_template chat_template_path chat_template_jinja",
        "model.template_args": (
            "chat_template_kwargs chat_template_args apply_chat_template_kwargs enable_thinking thinking"
        ),
        "data.prefill": "assistant_prefix assistant_prefill response_prefix continue_final_message",
        "data.plain": "apply_chat_template",
        "model.revision": "model_revision",
        "model.dtype": "torch_dtype",
        "model.attention": "attn_implementation flash_attention",
        "model.lora.r": "lora_r lora_rank",
        "model.lora.alpha": "lora_alpha",
        "model.lora.dropout": "lora_dropout",
        "model.lora.targets": "lora_target_modules lora_target_linear target_modules",
        "model.lora": "use_peft adapter peft_config",
        "data.train": "dataset_name datasets dataset train_files",
        "data.eval": "val_files test_datasets eval_dataset",
        "data.prompt": "prompt_key prompt_column dataset_prompt_column",
        "data.system": "system_prompt",
        "data.max_prompt_tokens": "max_prompt_length filter_overlong_prompts",
        "data.train.options.split": "dataset_train_split",
        "data.train.options.config": "dataset_config",
        "verify": "reward_funcs reward_functions custom_reward_function compute_score",
        "run.track": "project_name wandb_project logger",
        "run.name": "experiment_name",
        "run.dir": "default_local_dir",
        "run.save_every": "save_freq",
        "eval.every": "test_freq eval_freq val_before_train",
        "run.keep": "max_actor_ckpt_to_keep",
        "launch.gpus": "n_gpus_per_node nproc_per_node num_gpus",
        "launch.nodes": "nnodes num_machines",
        "launch.rendezvous": "main_process_ip",
    }
)

METHODS: dict[str, str] = {
    "n_grpo": "N-GRPO is `sample.mix: {rate: 0.1}`",
    "ngrpo": "N-GRPO is `sample.mix: {rate: 0.1}`",
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
    "pass_at_k": "`algorithm: pass_k` trains on the best of k samples; `eval.k` measures it",
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
    """The method whose name differs only in hyphens, underscores or dots."""
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
