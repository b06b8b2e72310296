"""TRL's own trainer on a recipe: `python bench/trl_recipe.py RECIPE FOLDER [--every 50] [--seconds N] [KEY=VALUE …]`.

Model, rows, reward, batch and rates are the recipe's, through `grpo_config`. TRL samples with `model.generate`, and every group
goes through the loss. A model is saved to FOLDER/step-N every so many steps, to be measured with `grpo eval FOLDER/step-N
--recipe RECIPE`. One JSON line a saved model: step, seconds since the first step began without the saving, tokens drawn and the
mean reward of the steps since the last one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOTrainer

from grpo_cli.data.rows import load_rows
from grpo_cli.policy.model import load_model
from grpo_cli.recipe.arithmetic import batching
from grpo_cli.recipe.reading.load import load
from grpo_cli.train.trl_config import grpo_config
from grpo_verifiers import as_reward, build


class Clock(TrainerCallback):
    """Saves the model every so many steps and stops after so many seconds; the time of saving does not count."""

    def __init__(self, folder: Path, every: int, most_s: float) -> None:
        self.folder, self.every, self.most_s = folder, every, most_s
        self.began, self.rewards, self.tokens = 0.0, list[float](), 0.0
        self.trainer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "reward" in logs:
            self.rewards.append(logs["reward"])
            self.tokens = logs.get("num_tokens", self.tokens)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took = time.monotonic() - self.began
        late = took > self.most_s
        control.should_training_stop |= late
        if late or state.global_step % self.every == 0 or state.global_step == state.max_steps:
            target = self.folder / f"step-{state.global_step}"
            self.trainer.save_model(str(target))
            mean = sum(self.rewards) / max(len(self.rewards), 1)
            line = {
                "step": state.global_step,
                "seconds": round(took, 1),
                "tokens": self.tokens,
                "reward": round(mean, 4),
            }
            print(json.dumps(line), flush=True)
            self.rewards.clear()
            self.began = time.monotonic() - took
        return control


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked, sets = parser.parse_known_args()
    recipe = load(asked.recipe, sets)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    policy = load_model(recipe.model, device=device, seed=recipe.train.seed)
    rows = load_rows(recipe.data, "train")
    longest = max(len(policy.encode(row)) for row in rows[:2000])
    batch = batching(recipe, longest, on_gpu=device.type == "cuda")
    args = grpo_config(recipe, asked.folder, batch, device, policy.autocast is not None)
    # what our trainer replaces by hooks of its own
    args.shuffle_dataset = True
    args.dataloader_pin_memory = device.type == "cuda"
    (verify,) = recipe.verify.values()
    clock = Clock(asked.folder, asked.every, asked.seconds)
    clock.trainer = GRPOTrainer(
        model=policy.model,
        processing_class=policy.tokenizer,
        reward_funcs=as_reward(build(verify.kind, **verify.options)),
        train_dataset=Dataset.from_list([{**row.fields, "prompt": row.messages or row.prompt} for row in rows]),
        args=args,
        callbacks=[clock],
    )
    clock.trainer.train()


if __name__ == "__main__":
    main()
