"""Small worlds for the race: every digit d of a string is to be answered by 3d+1 modulo 10.

    3520=   ->   0671

The warm-up shows the rule with noise: each digit of a demonstration is another one with probability NOISE, so the model
has the skill and samples it unreliably, the longer the string the more so. E1: 512 such rows, nothing permanently
useless. E2: 512 rows, of which 45 % are of a kind shown without noise (solved) and 30 % carry a broken label; only a
quarter can teach anything. The held-out rows are the same in both, and their labels are right.

E3: 4,000 rows of eight kinds, named by a letter before the digits, each with a rule of its own. Three kinds have one digit and are
shown without noise; the others have one to seven, of which each further one is shown right less often, from .5 down by .07,
so that the likelihood of a gold falls with its length.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

ROWS, HELD_OUT, WARM = 512, 128, 8192
MANY = 4000
KINDS = {"a": (3, 1), "b": (7, 2), "c": (9, 4), "d": (1, 3), "e": (3, 6), "f": (7, 5), "g": (9, 8), "h": (1, 7)}
"""Each digit d becomes m d + c modulo 10."""
SOLVED = "abc"
FIRST_RIGHT, FALLS = 0.5, 0.07
DIGITS = (2, 3, 4, 5, 6)
NOISE = 0.45
TARGET = 0.7
LR, PROMPTS = (2e-4, 16)  # where the alarm tests train; the race takes half, so that rows are seen eight times and more


def chain(rng: random.Random, digits: int) -> dict[str, str]:
    """A row, and a demonstration of it with noise."""
    asked = [rng.randrange(10) for _ in range(digits)]
    answer = [(3 * d + 1) % 10 for d in asked]
    shown = [rng.randrange(10) if rng.random() < NOISE else d for d in answer]
    return {"question": "".join(map(str, asked)) + "=", "answer": joined(answer), "shown": joined(shown)}


def solved(rng: random.Random) -> dict[str, str]:
    """A row that the warmed-up model never fails: one digit, to be repeated."""
    digit = str(rng.randrange(10))
    return {"question": f"copy {digit}=", "answer": digit, "shown": digit}


def broken(rng: random.Random, row: dict[str, str]) -> dict[str, str]:
    """The row with every digit of its label moved."""
    return row | {"answer": joined([(int(d) + rng.randrange(1, 10)) % 10 for d in row["answer"]])}


def graded(rng: random.Random) -> dict[str, str]:
    """A row of E3 and a demonstration of it, right the less often the further on."""
    kind = rng.choice(list(KINDS))
    factor, more = KINDS[kind]
    asked = [rng.randrange(10) for _ in range(1 if kind in SOLVED else rng.randint(1, 7))]
    answer = [(factor * d + more) % 10 for d in asked]
    shown = [
        d if kind in SOLVED or rng.random() < FIRST_RIGHT - FALLS * i else rng.randrange(10)
        for i, d in enumerate(answer)
    ]
    return {"question": f"{kind}{joined(asked)}=", "answer": joined(answer), "shown": joined(shown)}


def rows_of(world: str) -> int:
    """Training rows of a world."""
    return MANY if world == "E3" else ROWS


def joined(digits: list[int]) -> str:
    """Digits as text."""
    return "".join(map(str, digits))


def training_rows(world: str, rng: random.Random) -> list[dict[str, str]]:
    """The rows of a world, shuffled."""
    if world == "E3":
        return [graded(rng) for _ in range(MANY)]
    good = [chain(rng, rng.choice(DIGITS)) for _ in range(ROWS)]
    if world == "E1":
        return good
    easy, wrong = round(0.45 * ROWS), round(0.30 * ROWS)
    rows = [solved(rng) for _ in range(easy)] + [broken(rng, r) for r in good[:wrong]] + good[easy + wrong :]
    rng.shuffle(rows)
    return rows


def write_world(world: str, folder: Path, seed: int) -> None:
    """train.jsonl, heldout.jsonl and warm.jsonl of a world; ids are places, since short questions repeat."""
    rng = random.Random(f"{world}/{seed}")
    sets = {"train": training_rows(world, rng)}
    shared = random.Random("held out")
    if world == "E3":
        sets["heldout"] = [graded(shared) for _ in range(HELD_OUT)]
        sets["warm"] = [graded(shared) for _ in range(WARM)]
    else:
        sets["heldout"] = [chain(shared, shared.choice(DIGITS)) for _ in range(HELD_OUT)]
        sets["warm"] = [
            solved(shared) if shared.random() < 0.25 else chain(shared, shared.choice(DIGITS)) for _ in range(WARM)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in sets.items():
        lines = [json.dumps(row | {"place": f"{name}-{i}"}) for i, row in enumerate(rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def write_model(folder: Path) -> None:
    """A Llama of 0.1 M parameters with random weights; the recipe's warm-up teaches it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from grpo_cli.policy.model import byte_tokenizer

    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            bos_token_id=None,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def race_recipe(
    folder: Path, method: dict[str, Any], *, seed: int, steps: int, every: int, lr: float = LR, prompts: int = PROMPTS
) -> dict[str, Any]:
    """The recipe of one run."""
    return {
        "model": str(folder / "model"),
        "data": {
            "train": str(folder / "train.jsonl"),
            "eval": str(folder / "heldout.jsonl"),
            "prompt": "{question}",
            "answer": "{answer}",
            "id": "{place}",
            "plain": True,
        },
        "verify": {"exact": {}},
        "sample": {"prompts": prompts, "group": 8, "max_tokens": 8, "temperature": 1.0},
        "train": {"steps": steps, "lr": lr, "schedule": "constant", "lr_warmup_steps": 5, "seed": seed} | method,
        "eval": {"every": every, "samples": 2, "k": [1], "greedy": False},
        "monitor": {"kl": "off"},
        "run": {"dir": str(folder / "runs"), "threads": 1, "save_every": 10_000, "keep": 1},
        "warmup": [
            {
                "data": {"from": str(folder / "warm.jsonl")},
                "demonstration": [{"template": "{shown}"}],
                "steps": 300,
                "lr": 3e-3,
                "muon_lr": 0.015,
                "batch": 64,
            }
        ],
    }
