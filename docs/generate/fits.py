"""The table of `hardware.md`: which model fits which card, in which micro-batches, and the hours of 200 steps.

The page is written by hand but for what stands between two comments, `BEGIN` and `END`.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from docs.generate.markdown import table
from grpo_cli.policy.loading.files import ModelFiles
from grpo_cli.policy.loading.sizes import read_sizes
from grpo_cli.recipe.sections.method import Recompute
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.sizing.cards import read_cards
from grpo_cli.sizing.choose import Mode, choose

PAGE = Path(__file__).resolve().parents[1] / "hardware.md"
BEGIN, END = "<!-- the table of `make docs` begins -->\n", "<!-- the table of `make docs` ends -->\n"
MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B", "Qwen2.5-14B", "Qwen2.5-32B")
CARDS = {
    "24 GB (RTX 4090)": "4090",
    "48 GB (RTX 6000 Ada)": "rtx 6000 ada",
    "80 GB (H100)": "h100",
    "141 GB (H200)": "h200",
}
WAYS: dict[Mode, str] = {"full": "all weights", "LoRA": "LoRA, r 16", "4-bit": "4-bit and LoRA"}
STEPS = 200


def hardware_page() -> str:
    """The page with its table computed anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [
        [name, said, *(_cell(name, mode, card) for card in CARDS.values())]
        for name in MODELS
        for mode, said in WAYS.items()
    ]
    return before + BEGIN + table(["model", "trained", *CARDS], rows) + END + after


def _cell(name: str, mode: Mode, card: str) -> str:
    """Micro-batch, tokens of an answer, hours; a dash where it does not fit."""
    recipe = Recipe.model_validate(
        {
            "grpo": 1,
            "model": {"path": f"Qwen/{name}-Instruct"},
            "data": {"train": [{"from": "rows.jsonl"}], "prompt": "{p}", "answer": "{a}"},
            "verify": {"regex": {"pattern": "x"}},
            "train": {"steps": STEPS, "lr": 1e-6},
        }
    )
    sizes = read_sizes(recipe.model, ModelFiles(None, None, None))
    assert sizes is not None
    rungs = tuple((mode, again) for again in get_args(Recompute))
    found = choose(recipe, sizes, read_cards(card), 64 * STEPS, rungs=rungs)
    if found is None:
        return "–"
    again = {"no": "", "selective": " s", "full": " f"}[found.rung[1]]
    return f"{found.fit.work.micro}{again}, {found.fit.work.recipe.sample.max_tokens}, {found.fit.hours[1]:.2g} h"
