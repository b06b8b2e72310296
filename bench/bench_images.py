"""One step of a model that reads images, at real sizes with random weights: seconds and peak memory, beside TRL's own trainer.

    python bench/bench_images.py FOLDER [--by trl] [--image-tokens 768] [--prompts 4] [--group 8] [--tokens 256]

FOLDER holds the `config.json`, tokenizer and `preprocessor_config.json` of a model of the Qwen2-VL family, such as
Qwen2.5-VL-3B-Instruct; no weights are read. Prints one JSON object. It was not run on a GPU yet.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--by", choices=("grpo", "trl"), default="grpo")
    for name, value in (("image-tokens", 768), ("prompts", 4), ("group", 8), ("tokens", 256), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    with TemporaryDirectory() as place:
        made = Path(place)
        side = int(asked.image_tokens**0.5) * 28
        rows = []
        for i in range(asked.prompts * asked.steps):
            pixels = torch.randint(0, 255, (side, side, 3), dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(made / f"{i}.png")
            rows.append({"q": "What is shown?", "image": f"{i}.png"})
        (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        model = with_random_weights(asked.folder, made / "model")
        measured = by_trl(model, made, asked) if asked.by == "trl" else by_grpo(model, made, asked)
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
    print(json.dumps({"by": asked.by, "seconds": measured, "peak_gib": peak, "image_tokens": (side // 28) ** 2}))


def with_random_weights(folder: Path, out: Path) -> Path:
    """A folder with the model of a configuration, its weights random, and the files of tokenizer and processor."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    out.mkdir()
    for file in folder.iterdir():
        if file.suffix in (".json", ".txt", ".jinja") and "index" not in file.name:
            (out / file.name).write_bytes(file.read_bytes())
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    model.save_pretrained(out)
    return out


def by_grpo(model: Path, made: Path, asked: argparse.Namespace) -> list[float]:
    """Seconds of each step."""
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.recipe.sections.recipe import Recipe

    keys: dict[str, Any] = {
        "model": {"path": str(model), "lora": {"r": 16}},
        "data": {"train": str(made / "rows.jsonl"), "prompt": "{q}", "answer": "1", "images": "image"},
        "verify": {"regex": {"pattern": "e"}},
        "sample": {
            "prompts": asked.prompts,
            "group": asked.group,
            "max_tokens": asked.tokens,
            "micro_batch": asked.group,
        },
        "train": {"steps": asked.steps, "dead_groups": "keep"},
        "monitor": {"kl": "off"},
        "run": {"dir": str(made / "runs"), "name": "run", "save_every": 100},
    }
    Job(Recipe.model_validate({"grpo": 1, **keys}), label="bench", base=made, display=make_display("none")).run()
    lines = (made / "runs/run/metrics.jsonl").read_text().splitlines()
    return [found["time/step"] for line in lines if "time/step" in (found := json.loads(line))]


def by_trl(model: Path, made: Path, asked: argparse.Namespace) -> list[float]:
    """The same with TRL's own trainer and processor."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoProcessor
    from trl import GRPOConfig, GRPOTrainer

    ends: list[float] = []

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def log(self, *args: Any, **named: Any) -> None:
            torch.cuda.synchronize()
            ends.append(time.perf_counter())
            super().log(*args, **named)

    lines = (made / "rows.jsonl").read_text().splitlines()
    rows = [
        {"prompt": [{"role": "user", "content": row["q"]}], "image": Image.open(made / row["image"])}
        for row in map(json.loads, lines)
    ]
    config = GRPOConfig(
        str(made / "trl"),
        per_device_train_batch_size=asked.group,
        gradient_accumulation_steps=asked.prompts,
        num_generations=asked.group,
        max_completion_length=asked.tokens,
        max_steps=asked.steps,
        logging_steps=1,
        bf16=True,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
    )
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", exclude_modules=".*visual.*")
    trainer = Timed(
        model=str(model),
        processing_class=AutoProcessor.from_pretrained(model),
        reward_funcs=[lambda completions, **_: [float("e" in one[0]["content"]) for one in completions]],
        args=config,
        train_dataset=Dataset.from_list(rows),
        peft_config=lora,
    )
    began = time.perf_counter()
    trainer.train()
    return [b - a for a, b in zip([began, *ends], ends, strict=False)]


if __name__ == "__main__":
    main()
