"""What the benchmarks of steps run alike: a model with random weights and rows, `grpo train` on them, TRL's own trainer, and
each side in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PATTERN = "[a-m]\\s*$"
"""The reward: about half of random samples match."""


def side_command(script: str, name: str, folder: Path, settings: dict[str, Any]) -> list[str]:
    """What runs one side of a benchmark, which prints its result as its last line."""
    return [*(sys.executable, script, "--side", name, "--folder", str(folder)), *("--settings", json.dumps(settings))]


def side_environment(folder: Path, root: Path = ROOT) -> dict[str, str]:
    """Ours, with the tree at `root` first and no hub."""
    paths = [str(root), str(root / "verifiers"), str(HERE), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
    }


def run_side(script: str, name: str, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """One side in a process of its own."""
    command = side_command(script, name, folder, settings)
    done = subprocess.run(command, env=side_environment(folder), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the side `{name}` failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_model(folder: Path, model: Any, prompts: int, prompt_tokens: int) -> None:
    """Save the model with a tokenizer of as many byte strings as its vocabulary has, and rows for that many prompts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(f"{a}{b}{c}" for a in letters[:200] for b in letters[:50] for c in letters[64:90])]
    words = words[: model.config.vocab_size]
    inner = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=words[-2], eos_token=words[-1], padding_side="left"
    )
    for held in (model.config, model.generation_config):
        held.pad_token_id, held.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [{"prompt": f"{i:04} " + "x" * (prompt_tokens - 13 + i % 16), "answer": "1"} for i in range(prompts)]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")


def own_recipe(folder: Path, settings: dict[str, Any], steps: int, **model: Any) -> dict[str, Any]:
    """A recipe of these settings, over what `write_model` wrote."""
    return {
        "grpo": 1,
        "model": {"path": str(folder / "model"), **model},
        "data": {"train": str(folder / "rows.jsonl"), "prompt": "{prompt}", "answer": "{answer}", "plain": True},
        "verify": {"regex": {"pattern": PATTERN}},
        "sample": {
            "prompts": settings["prompts"],
            "group": settings["group"],
            "max_tokens": settings["new"],
            "micro_batch": settings["micro"],
            "engine": "graph",
        },
        "train": {"steps": steps, "lr": 1e-6},
        "monitor": {"kl": "off"},
        "run": {"dir": str(folder / "runs"), "save_every": 10_000},
    }


def run_own(
    folder: Path,
    settings: dict[str, Any],
    steps: int,
    callback: Callable[[], Any],
    note: Callable[[str], None] = lambda _: None,
    **model: Any,
) -> None:
    """`grpo train` on a recipe of these settings; `callback` makes the trainer callback that marks steps."""
    time_recipe(own_recipe(folder, settings, steps, **model), folder, callback, note)


def time_recipe(
    said: dict[str, Any], folder: Path, callback: Callable[[], Any], note: Callable[[str], None] = lambda _: None
) -> None:
    """`grpo train` on a recipe, with the trainer callback that `callback` makes."""
    from grpo_cli.commands.environment import quiet_libraries
    from grpo_cli.recipe.sections.recipe import Recipe

    quiet_libraries()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train import job

    made = job.make_trainer

    def timed(*args: Any, **more: Any) -> Any:
        trainer = made(*args, **more)
        trainer.add_callback(callback())
        return trainer

    job.make_trainer = timed
    display = make_display("none")
    display.note = lambda level, text, hint="": note(text)  # type: ignore[method-assign]
    job.Job(Recipe.model_validate(said), label="bench", base=folder, display=display).run()


def plain_trainer(
    folder: Path, settings: dict[str, Any], steps: int, dtype: Any, callback: Any, adapters: Any = None, **more: Any
) -> Any:
    """TRL's `GRPOTrainer` on the same model, rows, reward and batch split; `more` goes to its settings."""
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from grpo_verifiers import as_reward, build

    total = settings["prompts"] * settings["group"]
    micro = settings["micro"] or total
    arguments = {
        "output_dir": str(folder / "plain"),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": total // micro,
        "num_generations": settings["group"],
        "max_completion_length": settings["new"],
        "max_steps": steps,
        "learning_rate": 1e-6,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": settings["device"] != "cuda",
        "disable_tqdm": True,
    }
    return GRPOTrainer(
        peft_config=adapters,
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype),
        processing_class=AutoTokenizer.from_pretrained(folder / "model", padding_side="left"),
        reward_funcs=as_reward(build("regex", pattern=PATTERN)),
        train_dataset=load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train"),
        args=GRPOConfig(**arguments, **more),
        callbacks=[callback],
    )
