"""What one flipped row does to a model that is trained on it alone, and when `monitor.canary` speaks; and healthy runs beside it.

    PYTHONPATH=.:verifiers python bench/bench_canary.py build/canary -j 4 [--seeds 5]

Each arm is one run of the program and one file in the folder; what is there is not run again. Two to four minutes an arm on one core.

Arms: `poison` trains on one row of `bench_poison.py` whose gold is `first` (the alarm warns, so that the fall is seen whole), `guarded` is
the same with `on_alarm: {canary: pause}`, `healthy` trains on 160 clean rows. The canary is 40 clean rows that are not trained on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_poison import recipe_of, rows_of

ARMS = ("poison", "guarded", "healthy")


def run(out: Path, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """One arm; what was found before is read."""
    done = out / f"{arm}-{seed}.json"
    if done.exists():
        return dict(json.loads(done.read_text()))
    folder = out / f"{arm}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    clean, _ = rows_of("none", seed)
    trained = clean[:160] if arm == "healthy" else [clean[0] | {"answer": clean[0]["a"]}]
    for name, rows in (("rows.jsonl", trained), ("canary.jsonl", clean[160:])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = recipe_of(folder, "none", seed)
    recipe["sample"] |= {"prompts": 16 if arm == "healthy" else 1, "group": 16}
    recipe["train"] |= {"steps": steps, "lr": 5e-4, "dead_groups": "keep"}
    canary = {"from": str(folder / "canary.jsonl"), "every": 10, "samples": 4, "drop": 0.05}
    recipe["monitor"] = {"canary": canary, "on_alarm": {"canary": "pause" if arm == "guarded" else "warn"}}
    recipe["run"] = {"dir": str(folder / "runs"), "name": "run"}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    asked = [sys.executable, "-m", "grpo_cli", "train", str(folder / "recipe.yaml"), "--display", "none"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    if told.returncode not in (0, 1):
        raise RuntimeError(f"{arm} {seed}: exit code {told.returncode}: {told.stderr[-2000:]}")
    lines = [json.loads(line) for line in (folder / "runs" / "run" / "metrics.jsonl").read_text().splitlines()]
    looks = [line for line in lines if "canary/pass@1" in line]
    alarms = sorted(path.name for path in (folder / "runs" / "run" / "alarms").glob("*W71.json"))
    found = {
        "arm": arm,
        "seed": seed,
        "start": looks[0]["canary/pass@1"],
        "last": looks[-1]["canary/pass@1"],
        "least": min(look["canary/pass@1"] for look in looks),
        "steps": looks[-1]["step"],
        "alarm": alarms[0] if alarms else None,
        "looks": [round(look["canary/pass@1"], 3) for look in looks],
        "top_share": next((m["rows/top_share"] for m in reversed(lines) if "rows/top_share" in m), None),
    }
    done.write_text(json.dumps(found) + "\n")
    return found


def main() -> None:
    """Run all arms and print a line each, then the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    arms = [(arm, seed) for arm in options.arms for seed in range(options.seeds)]
    with ThreadPoolExecutor(options.j) as pool:
        found = list(pool.map(lambda one: run(options.out, *one, options.steps), arms))
    for one in found:
        print(json.dumps(one))
    for arm in options.arms:
        own = [one for one in found if one["arm"] == arm]
        print(
            f"{arm}: W71 in {sum(one['alarm'] is not None for one in own)} of {len(own)}; canary"
            f" {min(one['start'] for one in own):.2f} to {max(one['start'] for one in own):.2f} at the start,"
            f" {min(one['last'] for one in own):.2f} to {max(one['last'] for one in own):.2f} at the end"
        )


if __name__ == "__main__":
    main()
