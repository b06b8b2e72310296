"""A recipe that trains in seconds: a tiny model, a pattern that about half of its samples match."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

RECIPE = """\
grpo: 1
model: builtin:tiny
data:
  train: {{from: tasks:addition3, limit: 20}}
  eval: {{from: tasks:addition3, limit: 8, skip: 100}}
  prompt: "{{question}}"
  answer: "{{answer}}"
verify:
  regex: {{pattern: "[02468].*[13579]"}}
sample: {{prompts: 4, group: 4, max_tokens: 12, temperature: 1.0}}
train: {{steps: {steps}, lr: 1e-3, seed: 3}}
eval: {{every: 3, samples: 2, k: [1, 2]}}
run: {{save_every: {save_every}, keep: 3}}
warmup:
  - {{demonstration: "{{blurt}}", steps: 20, lr: 3e-3, muon_lr: 0.015, batch: 16}}
"""


def small_recipe(folder: Path, *, steps: int = 4, save_every: int = 2) -> Path:
    """Write the recipe into `folder`."""
    file = folder / "small.yaml"
    file.write_text(RECIPE.format(steps=steps, save_every=save_every))
    return file


def environment(folder: Path) -> dict[str, str]:
    """One thread, a cache of its own, and this checkout on the path."""
    paths = [str(ROOT), str(ROOT / "verifiers")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "GRPO_CACHE": str(folder.parent / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
