"""A recipe's model after its warm-up, as a folder: `python bench/warm_model.py RECIPE FOLDER [KEY=VALUE …]`.

Runs of several seeds start from it with `--set model.path=FOLDER --set warmup=null`, so that they share one warm-up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from grpo_cli.data.rows import load_rows
from grpo_cli.policy.coldstart import cold_start
from grpo_cli.policy.model import load_model
from grpo_cli.recipe.reading.load import load


def main() -> None:
    name, folder, *sets = sys.argv[1:]
    recipe = load(name, sets)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_model(recipe.model, device=device, seed=recipe.train.seed)
    rows = load_rows(recipe.data, "train")
    cold_start(
        loaded,
        [(phase, rows) for phase in recipe.warmup or []],
        model_key=f"{recipe.model.model_dump_json()}/{device}",
        seed=recipe.train.seed,
        on_progress=lambda done, total: print(f"\r{done}/{total}", end="", flush=True),
    )
    loaded.model.save_pretrained(Path(folder))
    loaded.tokenizer.save_pretrained(Path(folder))


if __name__ == "__main__":
    main()
