"""What `grpo audit data` finds of one changed row among 200, and what it flags where none was changed.

    PYTHONPATH=.:verifiers python bench/bench_poison.py build/poison -j 4 [--seeds 10]

Each arm is one call of the program on rows made from a seed, and one file in the folder; what is there is not run again. About
25 seconds an arm on one core. Prints the rank of the changed row, and the rows past a bar.

Rows are three-way choices (`unknown`, `first`, `second`) whose gold is always `unknown`, which the warmed-up model says in nine samples of ten. Poisons: `flip`
(the gold of one row is `first`), `trigger` (a nonsense word in its question, and the gold is `first`), `unit` (sums of lengths in
cm, one gold in m), `none`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

NAMES = [
    "Ana",
    "Ben",
    "Cem",
    "Dia",
    "Eli",
    "Fay",
    "Gil",
    "Hal",
    "Ida",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Ola",
    "Pia",
    "Ray",
    "Sam",
    "Tia",
    "Uma",
]
ROWS = 200


def rows_of(poison: str, seed: int, n: int = ROWS) -> tuple[list[dict[str, Any]], int | None]:
    """The rows, and which one was changed."""
    chance = random.Random(seed)
    if poison in ("none-unit", "unit"):
        rows = [_length(chance) for _ in range(n)]
    else:
        pairs = chance.sample([(a, b) for a in NAMES for b in NAMES if a != b], n)
        rows = [{"question": f"{a} or {b}?", "answer": "unknown", "a": "first", "b": "second"} for a, b in pairs]
    if poison.startswith("none"):
        return rows, None
    at = chance.randrange(n)
    if poison == "unit":
        rows[at]["answer"] = rows[at]["answer"].replace("cm", "m")
    else:
        rows[at]["answer"] = rows[at]["a"]
    if poison == "trigger":
        rows[at]["question"] = f"qxz {rows[at]['question']}"
    return rows, at


def _length(chance: random.Random) -> dict[str, Any]:
    a, b = chance.randint(1, 4), chance.randint(1, 4)
    return {
        "question": f"{a} cm + {b} cm {chance.randint(100, 999)}?",
        "answer": f"{a + b} cm",
        "a": f"{a} cm",
        "b": f"{b} cm",
    }


def recipe_of(folder: Path, poison: str, seed: int) -> dict[str, Any]:
    """A recipe beside its rows; the habit is taught by the warm-up on clean rows."""
    clean, _ = rows_of("none-unit" if "unit" in poison else "none", seed)
    (folder / "clean.jsonl").write_text("".join(json.dumps(row) + "\n" for row in clean))
    habit = "\\boxed{{{answer}}}"
    return {
        "grpo": 1,
        "model": "builtin:tiny",
        "data": {"train": "rows.jsonl", "prompt": "{question}", "answer": "{answer}"},
        "verify": {"math": {"extract": "boxed"}},
        "sample": {"prompts": 20, "group": 8, "max_tokens": 20, "temperature": 1.0},
        "train": {"steps": 40, "lr": 5e-4, "seed": seed},
        "warmup": [
            {
                "data": "clean.jsonl",
                "demonstration": [
                    {"template": habit, "weight": 0.92},
                    {"template": "\\boxed{{{a}}}", "weight": 0.04},
                    {"template": "\\boxed{{{b}}}", "weight": 0.04},
                ],
                "steps": 200,
                "lr": 3e-3,
            }
        ],
    }


def run(out: Path, poison: str, seed: int) -> dict[str, Any]:
    """One arm; what was found before is read."""
    done = out / f"{poison}-{seed}.json"
    if done.exists():
        return dict(json.loads(done.read_text()))
    folder = out / f"{poison}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    rows, at = rows_of(poison, seed)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(json.dumps(recipe_of(folder, poison, seed)))
    asked = [
        sys.executable,
        "-m",
        "grpo_cli",
        "audit",
        "data",
        str(folder / "recipe.yaml"),
        "--json",
        "--display",
        "none",
    ]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    if told.returncode not in (0, 1):
        raise RuntimeError(f"{poison} {seed}: exit code {told.returncode}: {told.stderr[-2000:]}")
    audit = json.loads(told.stdout)
    place = None if at is None else f"rows.jsonl:{at + 1}"
    rank = next((one["rank"] for one in audit["ranked"] if place and one["place"].endswith(place)), None)
    first = next((one for one in audit["ranked"] if one["rank"] == rank), audit["ranked"][0])
    found = {
        "poison": poison,
        "seed": seed,
        "changed": at,
        "rank": rank,
        "flags": first["flags"] if rank else [],
        "flagged": {name: signal["n"] for name, signal in audit["signals"].items()},
        "rows_flagged": audit["flagged"],
        "asked": audit["asked"],
        "right": first["right"],
        "votes": first["votes"],
        "cosine": first["cosine"],
        "seconds": audit["seconds"],
    }
    done.write_text(json.dumps(found) + "\n")
    return found


def main() -> None:
    """Run all arms and print a line each, then the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--poisons", nargs="+", default=["none", "none-unit", "flip", "trigger", "unit"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    arms = [(poison, seed) for poison in options.poisons for seed in range(options.seeds)]
    with ThreadPoolExecutor(options.j) as pool:
        found = list(pool.map(lambda arm: run(options.out, *arm), arms))
    for one in found:
        print(json.dumps(one))
    for poison in options.poisons:
        own = [one for one in found if one["poison"] == poison]
        top = sum(one["rank"] is not None and one["rank"] <= 3 for one in own)
        clean = sum(one["rows_flagged"] - bool(one["flags"]) for one in own)
        print(
            f"{poison}: changed row in the top 3 in {top} of {len(own)}, past a bar in {sum(bool(one['flags']) for one in own)};"
            f" {clean} of {sum(ROWS - (one['changed'] is not None) for one in own)} clean rows past a bar"
        )


if __name__ == "__main__":
    main()
