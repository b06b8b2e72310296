"""Our verifiers in TRL's own trainer: nothing of `grpo_cli`, only `pip install grpo-verifiers trl`.

    python examples/plain_trl.py MODEL examples/answers.jsonl --steps 20

MODEL is a hub id or a folder; the rows are JSON lines with `prompt` and `answer`. `as_reward` gives None where a verifier has
no verdict, which TRL leaves out of the sum: a failure is never a reward of zero.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from grpo_verifiers import as_reward, build


def read_rows(file: Path) -> Dataset:
    """A row for each question of a file, in its order."""
    rows = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows[row["prompt"]] = {"prompt": row["prompt"], "answer": row["answer"]}
    return Dataset.from_list(list(rows.values()))


def main() -> None:
    """Train, and print what TRL logs of the rewards."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=256, help="longest completion")
    parser.add_argument("--out", default="plain-trl", help="folder of the trained model")
    asked = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    maths = build("math")  # any kind: build("code"), build("regex", pattern=...), build("python", function=...)
    trainer = GRPOTrainer(
        model=asked.model,
        reward_funcs=[as_reward(maths, "math")],
        train_dataset=read_rows(asked.rows),
        args=GRPOConfig(
            output_dir=asked.out,
            max_steps=asked.steps,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=asked.tokens,
            logging_steps=1,
            bf16=has_gpu,
            use_cpu=not has_gpu,
            report_to=[],
            save_strategy="no",
        ),
    )
    trainer.train()
    maths.close()
    for log in trainer.state.log_history:
        if "reward" in log:
            print(f"step {log['step']}  math {log['rewards/math/mean']:.3f}")
    trainer.save_model(asked.out)


if __name__ == "__main__":
    main()
