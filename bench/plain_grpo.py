"""A plain `GRPOTrainer` on the quickstart's warm model: what one writes without `grpo`. Nothing of `grpo_cli` is used.

    python plain_grpo.py FOLDER STARTED_AT

FOLDER holds model/, train.jsonl, eval.jsonl (`prompt`, `answer`) and settings.json; `bench_target.py` writes them.
TRL generates with `model.generate`, every group goes through the loss, the reward is `grpo_verifiers`' own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from target_clock import EVERY, Stopwatch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from grpo_verifiers import as_reward, build

CHUNK = 256


def pass_1(model: Any, tokenizer: Any, rows: list[dict[str, Any]], reward: Any, settings: dict[str, Any]) -> float:
    """Mean share of right samples over the held-out rows."""
    prompts = [row["prompt"] for row in rows for _ in range(settings["eval_samples"])]
    answers = [row["answer"] for row in rows for _ in range(settings["eval_samples"])]
    texts: list[str] = []
    torch_state = torch.get_rng_state()
    torch.manual_seed(settings["seed"])
    for start in range(0, len(prompts), CHUNK):
        batch = tokenizer.apply_chat_template(
            prompts[start : start + CHUNK],
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        )
        with torch.no_grad():
            out = model.generate(
                **batch,
                do_sample=True,
                temperature=settings["temperature"],
                top_k=0,
                max_new_tokens=settings["max_tokens"],
            )
        texts += tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    torch.set_rng_state(torch_state)
    scores = reward(completions=texts, answer=answers)
    return float(sum(scores) / len(scores))


def main() -> None:
    folder, settings = Path(sys.argv[1]), json.loads((Path(sys.argv[1]) / "settings.json").read_text())
    torch.set_num_threads(settings["threads"])
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    reward = as_reward(build("math", extract="boxed"))
    held_out = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]

    class Race(Stopwatch):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.measure()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            if state.global_step % EVERY == 0 and self.measure():
                control.should_training_stop = True
            return control

        def measure(self) -> bool:
            with self.pause():
                score = pass_1(model, tokenizer, held_out, reward, settings)
            return self.evaluated(score)

    race = Race(float(sys.argv[2]))
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=load_dataset("json", data_files=str(folder / "train.jsonl"), split="train"),
        args=GRPOConfig(
            output_dir=str(folder / "plain"),
            per_device_train_batch_size=settings["prompts"] * settings["group"],
            num_generations=settings["group"],
            max_completion_length=settings["max_tokens"],
            max_steps=settings["steps"],
            learning_rate=settings["lr"],
            lr_scheduler_type=settings["schedule"],
            warmup_steps=settings["lr_warmup_steps"],
            temperature=settings["temperature"],
            loss_type=settings["loss"],
            seed=settings["seed"],
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        callbacks=[race],
    )
    trainer.train()
    race.report()


if __name__ == "__main__":
    main()
