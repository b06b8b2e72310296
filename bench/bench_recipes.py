"""The SmolLM2-135M recipes over seeds, each beside its placebo, many at once on one card.

    PYTHONPATH=.:verifiers python bench/bench_recipes.py OUT --seeds 5 -j 12
    PYTHONPATH=.:verifiers python bench/bench_recipes.py OUT --table

Each recipe is first run at every rate of its grid with a seed that is not raced; the rate whose last held-out score is best
is that of both its arms. The placebo is `train.control: shuffled`: the rewards (or labels) of a prompt's samples are dealt
out anew among them. Seeds go round all recipes and both arms, so that a break leaves as many seeds of each.

Runs are forks of this process, which has loaded all libraries and has not touched the card; where a fork cannot use it,
each is a process of its own. OUT/results.jsonl grows as runs end; what stands there is not run again. `--seconds` ends
everything then, `--model` is a folder with the weights of the package (reading the GGUF takes half a minute a run), and
`--rows` one with NAME-train.jsonl and NAME-eval.jsonl, for a machine without reasoning-gym.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bench_arms import ROOT, middle, outcome

GRPO_RATES = (1e-4, 3e-4, 1e-3)
RATES: dict[str, tuple[float, ...]] = {
    "countdown": GRPO_RATES,
    "format": GRPO_RATES,
    "code": GRPO_RATES,
    "guess": GRPO_RATES,
    "pairs": (3e-5, 1e-4, 3e-4),
    "instructions": GRPO_RATES,
    "records": GRPO_RATES,
    "sql": GRPO_RATES,
}
ARMS: dict[str, tuple[str, ...]] = {"recipe": (), "placebo": ("train.control=shuffled",)}
TUNING = 100
ALWAYS = ("run.report=false", "run.save_every=1000", "run.keep=1")


@dataclass(frozen=True)
class Ask:
    """One run; without a rate, the one that tuning chose."""

    recipe: str
    arm: str
    seed: int
    rate: float | None = None

    @property
    def name(self) -> str:
        """Its folder."""
        return "-".join([self.recipe, self.arm, *([f"{self.rate:g}"] if self.rate else []), str(self.seed)])


def plan(recipes: list[str], seeds: int) -> list[Ask]:
    """All runs, in the order in which they are begun as soon as they can be."""
    tuning = [Ask(recipe, "tune", TUNING, rate) for recipe in recipes for rate in RATES[recipe]]
    return tuning + [Ask(recipe, arm, seed) for seed in range(seeds) for recipe in recipes for arm in ARMS]


def chosen(recipe: str, found: list[dict[str, Any]]) -> float | None:
    """The rate with the best last score; None while one is missing. A run that failed counts as the worst."""
    runs = [one for one in found if one["recipe"] == recipe and one["arm"] == "tune"]
    if len(runs) < len(RATES[recipe]):
        return None
    best = max(runs, key=lambda one: one.get("after", -1.0))
    return float(best["rate"]) if "after" in best else None


class Races:
    """Runs that are under way, and what has come of those that ended."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.out = asked, asked.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = self.out / "results.jsonl"
        self.found = read(self.file)
        done = {(one["recipe"], one["arm"], one["seed"], one["asked"]) for one in self.found}
        every = plan(asked.recipes, asked.seeds)
        self.left = [ask for ask in every if (ask.recipe, ask.arm, ask.seed, ask.rate) not in done]
        self.under_way: dict[int, tuple[Ask, float, float, int]] = {}
        self.began, self.longest = time.monotonic(), dict.fromkeys(RATES, 0.0)
        self.cores = sorted(os.sched_getaffinity(0))
        self.forks = fork_can_use_the_card()
        self.say(f"{len(self.left)} runs, forks: {self.forks}")

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", flush=True)

    def go(self) -> None:
        """Begin what can be begun, wait for one to end, until all are done or time is over."""
        while self.left or self.under_way:
            late = time.monotonic() - self.began > self.asked.seconds
            while not late and len(self.under_way) < self.asked.jobs and (ready := self.next()):
                self.begin(*ready)
            if late or not self.under_way:
                break
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in self.under_way:
                self.end(pid, os.waitstatus_to_exitcode(status))
            elif not pid:
                time.sleep(0.2)
        for pid in self.under_way:
            os.killpg(pid, signal.SIGKILL)
        self.say(f"ended: {len(self.left)} not begun, {len(self.under_way)} broken off")

    def next(self) -> tuple[Ask, float] | None:
        """The first run whose rate is known and that the time left is enough for."""
        left = self.asked.seconds - (time.monotonic() - self.began)
        for ask in self.left:
            rate = ask.rate or chosen(ask.recipe, self.found)
            if rate is not None and self.longest[ask.recipe] < left:
                self.left.remove(ask)
                return ask, rate
        return None

    def begin(self, ask: Ask, rate: float) -> None:
        """Start a run in a process group of its own, on two cores: it starts a worker of its verifiers on each."""
        words = ["train", str(ROOT / "recipes" / f"smollm2-{ask.recipe}.yaml"), "--display", "plain"]
        said = [f"train.seed={ask.seed}", f"train.lr={rate:g}", f"run.dir={self.out}", f"run.name={ask.name}"]
        said += [*ALWAYS, *ARMS.get(ask.arm, ()), *self.asked.set]
        said += [f"model.path={self.asked.model}"] if self.asked.model else []
        if self.asked.rows and (self.asked.rows / f"{ask.recipe}-train.jsonl").exists():
            said += [f"data.{part}={self.asked.rows}/{ask.recipe}-{part}.jsonl" for part in ("train", "eval")]
        words += [word for one in said for word in ("--set", one)]
        log, began = self.out / f"{ask.name}.log", time.monotonic()
        slot = min(set(range(self.asked.jobs)) - {where for *_, where in self.under_way.values()})
        os.sched_setaffinity(0, {self.cores[(slot + i) % len(self.cores)] for i in range(2)})
        if self.forks:
            pid = os.fork()
            if pid == 0:
                become(words, log)
        else:
            with log.open("w") as stream:
                pid = subprocess.Popen(
                    [sys.executable, "-m", "grpo_cli", *words],
                    stdout=stream, stderr=stream, cwd=ROOT, start_new_session=True,
                ).pid  # fmt: skip
        os.sched_setaffinity(0, self.cores)
        self.under_way[pid] = (ask, rate, began, slot)

    def end(self, pid: int, code: int) -> None:
        """Note what came of a run."""
        ask, rate, began, _ = self.under_way.pop(pid)
        took = time.monotonic() - began
        self.longest[ask.recipe] = max(self.longest[ask.recipe], took)
        one = {"recipe": ask.recipe, "arm": ask.arm, "seed": ask.seed, "asked": ask.rate, "rate": rate}
        if code:
            one |= {"failed": code, "said": (self.out / f"{ask.name}.log").read_text()[-600:]}
        else:
            one |= outcome(self.out / ask.name) | {"wall_s": round(took, 1)} | more(self.out / ask.name)
        self.found.append(one)
        with self.file.open("a") as stream:
            stream.write(json.dumps(one) + "\n")
        self.say(f"{ask.name} {took:.0f} s  {one.get('before')} -> {one.get('after')}  {one.get('said', '')}")


def become(words: list[str], log: Path) -> None:
    """Turn this fork into the run."""
    os.setsid()
    handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    for target in (1, 2):
        os.dup2(handle, target)
    os.chdir(ROOT)
    sys.argv = ["grpo", *words]
    code = 1
    try:
        from grpo_cli.app import main as grpo

        grpo()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def fork_can_use_the_card() -> bool:
    """Load all that a run loads, then let a fork try; true as well where there is no card."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the other check would spoil the card for forks
    import torch

    import grpo_cli.jobs.train.job  # noqa: F401

    pid = os.fork()
    if pid == 0:
        try:
            if torch.cuda.is_available():
                torch.zeros(1, device="cuda").add_(1).item()
            os._exit(0)
        except RuntimeError as err:
            print(f"a fork cannot use the card: {err}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def more(folder: Path) -> dict[str, Any]:
    """Greedy before the first step, pass@4 before and after, and the mean reward of every step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    scores = [line for line in lines if "eval/pass@1" in line]
    return {
        "greedy_before": scores[0].get("eval/greedy"),
        "pass4": [line.get("eval/pass@4") for line in (scores[0], scores[-1])],
        "rewards": [round(line["reward/total/mean"], 4) for line in lines if "reward/total/mean" in line],
    }


def read(file: Path) -> list[dict[str, Any]]:
    """What came of runs so far."""
    return [json.loads(line) for line in file.open(encoding="utf-8")] if file.exists() else []


def table(found: list[dict[str, Any]]) -> str:
    """A line for each recipe and arm: held-out pass@1 before and after, and the gain less the placebo's, paired by seed."""
    out = [f"{'recipe':10} {'arm':8} {'rate':>6} n  before          after           gain less the placebo's"]
    for recipe in RATES:
        runs = {(one["arm"], one["seed"]): one for one in found if one["recipe"] == recipe and "after" in one}
        for arm in ARMS:
            mine = [one for (name, _), one in runs.items() if name == arm]
            if not mine:
                continue
            both = [seed for name, seed in runs if name == arm and ("placebo", seed) in runs]
            gains = [gain(runs[arm, seed]) - gain(runs["placebo", seed]) for seed in both if arm != "placebo"]
            before, after = (middle([one[key] for one in mine]) for key in ("before", "after"))
            out.append(
                f"{recipe:10} {arm:8} {mine[0]['rate']:6g} {len(mine)}  {before:15} {after:15}"
                f" {middle(gains) if gains else ''}  {statistics.fmean(one['wall_s'] for one in mine):.0f} s"
            )
        tried = [one for one in found if one["recipe"] == recipe and one["arm"] == "tune"]
        out += (
            [f"{recipe:10} tuned: " + ", ".join(f"{one['rate']:g} {one.get('after')}" for one in tried)]
            if tried
            else []
        )
    return "\n".join(out)


def gain(one: dict[str, Any]) -> float:
    """What held-out pass@1 gained."""
    return float(one["after"] - one["before"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipes", nargs="+", choices=list(RATES), default=list(RATES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-j", "--jobs", type=int, default=1, help="runs at the same time, of one thread each")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="end then")
    parser.add_argument("--model", type=Path, help="a folder in place of the package")
    parser.add_argument("--rows", type=Path, help="a folder of rows in place of reasoning-gym")
    parser.add_argument("--set", action="append", default=[], help="said beside every recipe")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    asked = parser.parse_args()
    if not asked.table:
        os.environ |= {"GRPO_CACHE": str(asked.out.resolve() / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        Races(asked).go()
    print(table(read(asked.out / "results.jsonl")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
