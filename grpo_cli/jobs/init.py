"""What `grpo init` works out: settings for a card, and with `--from FILE` a GRPO configuration of TRL, open-r1 or axolotl as a recipe,
and a list of what has no counterpart.

How this works: `settings_for` finds the sizes of a model and asks `sizing.choose` for settings that fit. Names of other trainers go through the one table of other trainers' names (`recipe.checking.other_names`); what a name alone cannot say (batch
sizes, data sets, rewards) is worked out here. What was left out is never silent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from grpo_cli.errors import DataError, UsageError
from grpo_cli.policy.loading.sizes import local_sizes, size_hint
from grpo_cli.recipe.checking.other_names import FIELDS, counterpart, why_none
from grpo_cli.recipe.reading.load import load
from grpo_cli.sizing.cards import read_cards
from grpo_cli.sizing.choose import TOKENS, Settings, choose, smallest_card
from grpo_cli.sizing.fit import unfit
from grpo_cli.starters import files

# Settings that fit a card.


def settings_for(task: str, model: str, gpu: str) -> Settings:
    """Settings under which the starter of a task trains a model on the card that a person names.

    Raises:
        UsageError: no such card, the model's sizes are unknown, or none fits.
    """
    if model == "builtin:tiny":
        raise UsageError("`builtin:tiny` runs on a CPU: there is nothing to choose", hint="leave `--gpu` out")
    cards, found = read_cards(gpu), files(task, model)
    recipe = load(found["recipe.yaml"], [f"model={json.dumps(model)}"])
    sizes = local_sizes(recipe.model)
    if sizes is None:
        raise UsageError(
            f"the sizes of `{model}` are not known here, so none of its settings can be chosen",
            place="--model",
            hint=f"{size_hint(recipe.model)}; without `--gpu` the recipe is written as it is",
        )
    if (why := unfit(recipe, sizes)) is not None:
        raise UsageError(f"no settings can be chosen: {why}", place="--gpu", hint="leave `--gpu` out")
    rows, held_out = (
        len(found[name].read_text(encoding="utf-8").splitlines()) for name in ("train.jsonl", "eval.jsonl")
    )
    own = recipe.sample.max_tokens  # a task whose answers are short says so
    tokens = TOKENS if own >= min(TOKENS) else (own,)
    chosen = choose(recipe, sizes, cards, rows, tokens, held_out=held_out)
    if chosen is None:
        least = smallest_card(recipe, sizes, rows)
        hint = f"the smallest that does is one {least.name}, {least.memory:g} GiB" if least else "no card here does"
        raise UsageError(f"`{model}` fits no {cards.card.name} in any way that is known here", place="--gpu", hint=hint)
    return chosen


# Reward functions that a configuration of another trainer names, as verifiers.

OPEN_R1: dict[str, tuple[dict[str, Any], str]] = {
    "accuracy": ({"math": {}}, "{solution}"),
    "format": ({"format": {"tags": ["think", "answer"]}}, ""),
}
"""Names of open-r1's registry: the verifier that judges the same, and where the gold is."""
TRL = ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward", "get_soft_overlong_punishment")
"""Functions that `trl.rewards` has by these names."""

# The training settings of a configuration as recipe keys: batch, length, schedule and loss.


def put_batch(rest: Config, made: ConvertedRecipe) -> None:
    """Prompts a step and the micro-batch, from completions a step and the size of a group."""
    group = int(rest.get("num_generations", 8))
    micro = int(take(rest, "per_device_train_batch_size", "micro_batch_size") or 8)
    together = micro * int(take(rest, "gradient_accumulation_steps") or 1)
    prompts, over = divmod(together, group)
    made.put("sample.prompts", max(1, prompts))
    if over:
        made.left.append(
            ("per_device_train_batch_size", micro, f"{together} completions a step are no whole groups of {group}")
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


SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant"}
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
        made.left.append(("loss_type", rest.pop("loss_type"), "GSPO averages each answer by itself: `loss: grpo`"))
        made.put("train.loss", "grpo")


# The recipe made from another trainer's configuration, and the settings that are not converted yet.

Config = dict[str, Any]


@dataclass
class ConvertedRecipe:
    """A recipe as nested mappings, and `(name, value, why)` for every setting left out of it."""

    recipe: Config = field(default_factory=dict)
    left: list[tuple[str, object, str]] = field(default_factory=list)

    def put(self, path: str, value: object) -> None:
        """Set the key at a dotted path."""
        *above, last = path.split(".")
        inner = self.recipe
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value


def take(rest: Config, *names: str) -> Any:
    """The value of the first of these names; all of them then count as converted."""
    found = [rest.pop(name) for name in names if name in rest]
    return found[0] if found else None


NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
_BY_TYPE: dict[type, str] = {
    int: "num_generations max_completion_length max_prompt_length warmup_steps num_iterations seed save_total_limit",
    float: "temperature learning_rate max_grad_norm epsilon",
    str: "system_prompt model_name_or_path base_model model_revision attn_implementation loss_type run_name",
    bool: "mask_truncated_completions",
}
PLAIN = {name: kind for kind, names in _BY_TYPE.items() for name in names.split()}
"""Names whose value is copied unchanged to the key of the same meaning, with its type."""
PRECISION = "weights stay in float32 and products run in bfloat16 where that pays: a small rate would not move others"
UNSAID = {
    "bf16": PRECISION,
    "fp16": PRECISION,
    "torch_dtype": PRECISION,
    "dtype": PRECISION,
    "use_cpu": "the machine decides",
    "gradient_accumulation_steps": "it is in `sample.prompts`",
}


def read_config(file: Path) -> Config:
    """The mapping in a YAML or JSON file, the section `trl` of axolotl beside the rest.

    Raises:
        DataError: it cannot be read, or is no GRPO configuration.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError) as err:
        raise DataError(f"cannot be read: {str(err).splitlines()[0]}", place=str(file)) from err
    except RecursionError as err:
        raise DataError("cannot be read: nested too deep", place=str(file)) from err
    if not isinstance(found, dict):
        raise DataError("it holds no mapping of names and values", place=str(file))
    flat = {str(name).replace("-", "_"): value for name, value in found.items()}
    trl = flat.pop("trl", None)
    flat |= trl if isinstance(trl, dict) else {}
    if (method := flat.pop("rl", "grpo")) != "grpo":
        raise DataError(f"`rl: {method}` is another method than GRPO", place=str(file))
    if not any(counterpart(name).startswith(("sample", "train", "verify")) for name in flat):
        raise DataError(
            "none of its names is one of a GRPO trainer",
            place=str(file),
            hint="a YAML or JSON file of TRL's GRPOConfig, open-r1 or axolotl is read",
        )
    return {name: value for name, value in flat.items() if value is not None}


def convert(config: Mapping[str, Any]) -> ConvertedRecipe:
    """The recipe of a configuration. Steps are those of one process: `launch.gpus` shares them out.

    Raises:
        DataError: a value is of another kind than its name takes, such as a text for a number.
    """
    made, rest = ConvertedRecipe(), dict(config)
    try:
        for part in (_model, _data, _rewards, put_batch, put_length, put_method, _run):
            part(rest, made)
        for name, value in rest.items():
            key = counterpart(name, value)
            if name in PLAIN and key:
                made.put(key, PLAIN[name](value))
            elif name in NEUTRAL:
                value = max(0, int(value)) if name == "top_k" else value
                if value != NEUTRAL[name]:
                    made.put(f"sample.{name}", value)
                    made.put("sample.off_policy_ok", True)
            elif name in UNSAID:
                made.left.append((name, value, UNSAID[name]))
            elif name.startswith("vllm_"):
                made.put(f"sample.vllm.{name.removeprefix('vllm_')}", value)
            elif key == f"train.trl.{name}" and name in FIELDS:
                made.put(key, value)
            else:
                made.left.append(
                    (name, value, why_none(name) or (f"say it with `{key}`" if key else "nothing here means that"))
                )
    except (TypeError, ValueError, ArithmeticError, AttributeError) as err:
        raise DataError(
            f"a value is of another kind than its name takes: {err}",
            hint="fix the configuration, or write the recipe with `grpo init` and its keys",
        ) from err
    return made


def _model(rest: Config, made: ConvertedRecipe) -> None:
    quantised = take(rest, "load_in_4bit")
    if quantised:
        made.put("model.load_in_4bit", True)
    adapter = take(rest, "use_peft", "adapter")
    lora: Config = {}
    for name, key, kind in (("lora_r", "r", int), ("lora_alpha", "alpha", int), ("lora_dropout", "dropout", float)):
        if (value := take(rest, name)) is not None:
            lora[key] = kind(value)
    targets, linear = take(rest, "lora_target_modules", "target_modules"), take(rest, "lora_target_linear")
    if targets is not None and not linear:
        lora["targets"] = targets if targets == "all-linear" or isinstance(targets, list) else [targets]
    if adapter or quantised:
        made.put("model.lora", {"r": 16} | lora)
    elif lora:
        made.left.append(("lora_…", lora, "no `use_peft` or `adapter` asks for adapters"))


def _data(rest: Config, made: ConvertedRecipe) -> None:
    names, mixture = take(rest, "dataset_name", "datasets", "dataset"), take(rest, "dataset_mixture")
    split, config = take(rest, "dataset_train_split"), take(rest, "dataset_config")
    held_out = take(rest, "dataset_test_split")
    if isinstance(mixture, dict):
        names = mixture.get("datasets")
    found = [_source(one, split, config) for one in (names if isinstance(names, list) else [names]) if one]
    made.put("data.train", found or [{"from": "train.jsonl"}])
    if not found:
        made.left.append(("dataset_name", None, "no rows are named: `data.train` says `train.jsonl`"))
    tests = take(rest, "test_datasets", "eval_dataset")
    if tests:
        made.put("data.eval", [_source(one, None, None) for one in (tests if isinstance(tests, list) else [tests])])
    elif held_out and found and rest.get("eval_strategy", "no") != "no":
        made.put("data.eval", _source(names, held_out, config))
    column = take(rest, "dataset_prompt_column", "prompt_column")
    made.put("data.prompt", "{" + str(column or "prompt") + "}")


def _source(named: object, split: object, config: object) -> Config:
    """One source of rows: a name, or a mapping as axolotl and open-r1 write it."""
    said = dict(named) if isinstance(named, dict) else {"path": named}
    name = str(said.get("path") or said.get("id") or "")
    is_file = name.endswith((".jsonl", ".json", ".csv", ".parquet", ".gz", ".zst")) or Path(name).exists()
    options = {
        key: value
        for key, value in (
            ("split", said.get("split") or split),
            ("config", said.get("name") or said.get("config") or config),
        )
        if value
    }
    source: Config = {"from": name if is_file or name.startswith("hub:") else f"hub:{name}"}
    source |= {"options": options} if options and not is_file else {}
    return source | ({"weight": said["weight"]} if said.get("weight") else {})


def _rewards(rest: Config, made: ConvertedRecipe) -> None:
    functions, weights = take(rest, "reward_funcs", "reward_functions"), take(rest, "reward_weights")
    listed = functions if isinstance(functions, list) else [functions] if functions else []
    weights = weights if isinstance(weights, list) else []
    verify: dict[str, Any] = {}
    answer = ""
    for at, named in enumerate(listed):
        name = str(named)
        weight = {"weight": float(str(weights[at]))} if at < len(weights) else {}
        if name in OPEN_R1:
            found, gold = OPEN_R1[name]
            verify |= {kind: options | weight for kind, options in found.items()}
            answer = answer or gold
        elif name in TRL and name != "get_soft_overlong_punishment":
            verify[name] = {"kind": "python", "function": f"trl.rewards:{name}"} | weight
        elif "." in name and "/" not in name:
            module, _, function = name.rpartition(".")
            verify[function] = {"kind": "python", "function": f"{module}:{function}"} | weight
        else:
            why = "give the function with `verify: {NAME: {python: FILE.py:FUNCTION}}`"
            if "/" in name:
                why = "a reward model is `verify: {NAME: {kind: reward_model}}`"
            elif name == "get_soft_overlong_punishment":
                why = "it is `train.overlong`"
            made.left.append((f"reward_funcs: {name}", weight.get("weight", 1.0), why))
    if not verify:
        made.left.append(("reward_funcs", functions, "no reward could be taken over: `verify` says `math`"))
        verify, answer = {"math": {}}, "{answer}"
    made.put("verify", verify)
    if answer:
        made.put("data.answer", answer)


TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")


def _run(rest: Config, made: ConvertedRecipe) -> None:
    each: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
        ("output_dir", "run.dir", str), ("save_steps", "run.save_every", int), ("eval_steps", "eval.every", int),
    )  # fmt: skip
    for name, key, kind in each:
        strategy = rest.get(name.replace("steps", "strategy"), "steps")
        if (value := take(rest, name)) is not None and (strategy == "steps" or name == "output_dir"):
            made.put(key, kind(value))
    take(rest, "save_strategy", "eval_strategy", "do_eval")
    if "eval" not in made.recipe["data"]:
        made.recipe.pop("eval", None)
    if take(rest, "use_vllm"):
        made.put("sample.engine", "vllm")
    else:
        for name in [name for name in rest if name.startswith("vllm_")]:
            made.left.append((name, rest.pop(name), "`use_vllm` is off"))
    said = take(rest, "report_to")
    track = [one for one in (said if isinstance(said, list) else [said]) if one in TRACKERS]
    if track:
        made.put("run.track", track)


ORDER = ("grpo", "model", "data", "sample", "verify", "train", "eval", "run")


def as_yaml(made: ConvertedRecipe, source: str) -> str:
    """The recipe file, with what has no counterpart in comments above it."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 110
    recipe = {"grpo": 1} | made.recipe
    written = StringIO()
    yaml.dump({key: recipe[key] for key in ORDER if key in recipe}, written)
    head = [f"# From {source}. One process is taken for granted: more share the same steps out (`launch.gpus`)."]
    head += [f"#   not here: {line}" for line in _lines(made)]
    return "\n".join([*head, written.getvalue()])


def listed(made: ConvertedRecipe) -> list[str]:
    """The same list for the screen."""
    lines = _lines(made)
    return [f"{len(lines)} without a counterpart:", *(f"  {line}" for line in lines)] if lines else []


def _lines(made: ConvertedRecipe) -> list[str]:
    return [f"{name}: {value} ({why})" if value is not None else f"{name} ({why})" for name, value, why in made.left]
