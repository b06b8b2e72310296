"""Arms of one recipe beside each other, seed by seed: held-out scores, generated tokens, CPU seconds of each phase.

    python bench/bench_arms.py warmup OUT --seeds 6 -j 8
    python bench/bench_arms.py ppo OUT --tune -j 1
    python bench/bench_arms.py ppo OUT --seeds 5 -j 1

Each run is a `grpo train` of its own with two threads, in OUT/ARM-SEED. What came of it stands in OUT/results.jsonl as it
ends: call again and those that are there are not run again; one that was broken off starts over. Nothing but this checkout
is read. Scores are means over seeds with 95 % t intervals.

A race with rates is tuned first (`--tune`): every arm with every rate on two seeds that are not raced, and the best mean of
the last scores wins. `losses`: presets at one rate, with two passes over each batch, so that ratios are not 1; its second table has the
deviation between seeds at a quarter, half and end of the run, the worst seed, tokens to .8, the share of tokens that the bound took out,
whether the end is within .02 of the first arm's (two one-sided t tests, paired by seed) and Levene's p of its spread. `ppo`: arms draw equally many completions, of which some are longer; `at equal tokens` are the
generated tokens of the arm that drew fewest with the seed, between the evaluations before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Arm:
    """What is said beside the recipe, and set in the environment."""

    sets: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    like: str = ""
    """The arm whose rate this one takes."""


@dataclass(frozen=True)
class Race:
    """Arms of one recipe, what is said beside all of them, and the learning rates that each is tuned over."""

    recipe: str
    arms: dict[str, Arm]
    sets: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    warms_once: bool = False
    """Whether arms of one seed start from one warm-up, in place of one each."""


AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""torch and oneDNN without the instructions of later CPUs; with `avx2-mkl` MKL's products too."""
BEFORE = ("warmup.0.batch=64",)

CRITIC = (
    "train.algorithm=ppo",
    "sample.prompts=256",
    "sample.group=1",
    "train.critic.lr=1e-3",
    "train.critic.warmup_steps=5",
)
"""As many completions a step as 32 groups of 8. The critic's rate was set before the first run and is not tuned. PPO makes four
updates a step, and `grpo-4` says what of a difference these are."""
RACES = {
    "warmup": Race(
        "recipes/quickstart.yaml",
        {
            "native": Arm(),
            "avx2": Arm(env=AVX2),
            "avx2-mkl": Arm(env={**AVX2, "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
            "batch64": Arm(BEFORE),
        },
    ),
    "ppo": Race(
        "recipes/quickstart.yaml",
        {
            "grpo": Arm(("train.algorithm=grpo", "train.kl.beta=0")),
            "grpo-4": Arm(("train.algorithm=grpo", "train.kl.beta=0", "train.mini_batches=4")),
            "rloo": Arm(("train.algorithm=rloo", "train.kl.beta=0")),
            "ppo": Arm(CRITIC),
            "ppo-cold": Arm((*CRITIC, "train.critic.warmup_steps=0")),
            "ppo-share": Arm((*CRITIC, "train.critic.share=true")),
            "ppo-placebo": Arm((*CRITIC, "train.control=random"), like="ppo"),
        },
        # short, so that a core does it in an hour; rates stay where they are, or half of the run would be a fall to 0
        sets=(
            "train.steps=25",
            "train.schedule=constant",
            "eval.every=5",
            "eval.limit=256",
            "eval.greedy=false",
            "monitor.kl=off",
        ),
        rates=(3e-5, 1e-4, 3e-4, 1e-3),
        warms_once=True,
    ),
}
PRESETS = (
    *(
        "default",
        "grpo",
        "dr_grpo",
        "gspo",
        "cispo",
        "sapo",
        "rloo",
        "reinforce_pp",
        "max_rl",
        "dppo",
        "gmpo",
        "pass_k",
        "opo",
        "otb",
    ),
    *("vespo", "luspo"),
)
"""Those that say something else than another on a single verifier."""
RACES["losses"] = Race(
    "recipes/quickstart.yaml",
    {name: Arm((f"train.algorithm={name}",)) for name in PRESETS} | {"placebo": Arm(("train.control=random",))},
    sets=(
        *RACES["ppo"].sets,
        "train.steps=24",
        "eval.every=6",
        "train.inner_epochs=2",
        "train.kl.beta=0",
        "train.dead_groups=keep",
    ),
    warms_once=True,
)
MARGIN, MARK = 0.02, 0.8
TUNING = (100, 101)
"""The seeds of `--tune`."""

PHASES = ("setup", "warmup", "generate", "verify", "update", "critic", "evaluate")


@dataclass(frozen=True)
class Ask:
    """One run."""

    race: str
    arm: str
    seed: int
    rate: float | None = None

    @property
    def name(self) -> str:
        """Its folder."""
        return "-".join([self.arm, *([f"{self.rate:g}"] if self.rate else []), str(self.seed)])


def run(ask: Ask, out: Path) -> dict[str, Any]:
    """Train one arm with one seed, and read what came of it."""
    race, folder = RACES[ask.race], out / ask.name
    arm = race.arms[ask.arm]
    shutil.rmtree(folder, ignore_errors=True)
    said = [f"train.seed={ask.seed}", f"run.dir={out}", f"run.name={folder.name}", *race.sets, *arm.sets]
    said += [f"train.lr={ask.rate:g}"] if ask.rate else []
    words = [sys.executable, "-m", "grpo_cli", "train", race.recipe, "--display", "plain"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "verifiers"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        "GRPO_CACHE": str(out / "cache" / ("" if race.warms_once else folder.name)),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
        **arm.env,
    }
    command = words + [part for one in said for part in ("--set", one)]
    began = time.monotonic()
    with (out / f"{ask.name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
    who = {"arm": ask.arm, "seed": ask.seed, "rate": ask.rate}
    if process.returncode:
        return who | {"failed": Path(log.name).read_text(encoding="utf-8").strip().splitlines()[-1:]}
    took = {"wall_s": time.monotonic() - began, "peak_mib": used.ru_maxrss / 1024}
    return who | outcome(folder) | took


def best_rate(race: str, arm: str, found: Sequence[dict[str, Any]]) -> float | None:
    """The rate with the best mean of the last scores of the tuning runs; None where the race has none.

    Raises:
        SystemExit: a tuning run is missing.
    """
    arm = RACES[race].arms[arm].like or arm

    def mean(rate: float) -> float:
        runs = [one for one in found if (one["arm"], one["rate"]) == (arm, rate) and one["seed"] in TUNING]
        if len(runs) < len(TUNING):
            raise SystemExit(f"{arm} at {rate:g}: {len(runs)} of {len(TUNING)} tuning runs, call with --tune")
        return statistics.fmean(one["after"] for one in runs)

    return max(RACES[race].rates, key=mean) if RACES[race].rates else None


def outcome(folder: Path) -> dict[str, Any]:
    """Scores before and after, tokens, peak memory, and CPU seconds by phase."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    scores = [line for line in lines if "eval/pass@1" in line]
    drawn, spent = 0.0, {0: 0.0}
    for line in lines:
        drawn += line.get("tokens/drawn") or 0.0
        spent[line["step"]] = drawn
    steps = [line for line in lines if "reward/total/mean" in line]
    phases = json.loads((folder / "run.json").read_text())["phases"]
    variance = [line["critic/explained_variance"] for line in steps if line.get("critic/explained_variance")]
    shares = [line["clip/total"] for line in steps if line.get("clip/total") is not None]
    waited = [line["critic/explained_variance"] for line in steps if line.get("critic/warmup")]
    return {
        "before": scores[0]["eval/pass@1"],
        "after": scores[-1]["eval/pass@1"],
        "greedy": scores[-1].get("eval/greedy"),
        "curve": [(line["step"], line["eval/pass@1"]) for line in scores],
        "spent": [spent[line["step"]] for line in scores],
        "tokens": sum(line["tokens/drawn"] for line in steps),
        "critic_mib": max((line.get("critic/mib", 0.0) for line in steps), default=0.0),
        "masked": statistics.fmean(shares) if shares else None,
        "explained": variance[-1] if variance else None,
        "explained_warm": waited[-1] if waited else None,
        "cpu": {name: said["cpu_s"] for name, said in phases.items()},
    }


def middle(values: list[float]) -> str:
    """`.912 ±.041`, the half-width by t over seeds; the value alone where there is one."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} ±{half:.3f}"


def at_tokens(one: dict[str, Any], tokens: float) -> float:
    """The held-out score when so many tokens were drawn, on the line between two evaluations."""
    spent, scores = one["spent"], [score for _, score in one["curve"]]
    for i in range(1, len(spent)):
        if spent[i] >= tokens:
            share = (tokens - spent[i - 1]) / (spent[i] - spent[i - 1])
            return float(scores[i - 1] + share * (scores[i] - scores[i - 1]))
    return float(scores[-1])


def each(found: list[dict[str, Any]], arms: list[str]) -> str:
    """A line for each run."""
    out = [
        f"{'arm':12}{'seed':>5}{'rate':>8}{'before':>8}{'after':>8}{'greedy':>8}{'tokens':>9}  CPU seconds: "
        + " ".join(PHASES)
    ]
    for one in sorted(found, key=lambda r: (arms.index(r["arm"]), r["seed"], r.get("rate") or 0.0)):
        if "failed" in one:
            out.append(f"{one['arm']:12}{one['seed']:5}  failed: {one['failed']}")
            continue
        cpu = " ".join(f"{one['cpu'].get(name, 0.0):7.1f}" for name in PHASES)
        greedy = "—" if one["greedy"] is None else f"{one['greedy']:.3f}"
        rate = f"{one['rate']:g}" if one["rate"] else "—"
        out.append(
            f"{one['arm']:12}{one['seed']:5}{rate:>8}{one['before']:8.3f}{one['after']:8.3f}{greedy:>8}"
            f"{one['tokens']:9.0f}  {cpu}"
        )
    return "\n".join(out)


def summary(found: list[dict[str, Any]], arms: list[str]) -> str:
    """Lines for each arm."""
    ended = [one for one in found if "failed" not in one]
    least: dict[int, float] = {}
    for one in ended:
        least[one["seed"]] = min(one["tokens"], least.get(one["seed"], one["tokens"]))
    equal: dict[str, dict[int, float]] = {arm: {} for arm in arms}
    for one in ended:
        equal[one["arm"]][one["seed"]] = at_tokens(one, least[one["seed"]])
    return "\n".join(line for arm in arms for line in of_arm(arm, ended, equal, arms[0]))


def of_arm(arm: str, ended: list[dict[str, Any]], equal: dict[str, dict[int, float]], base: str) -> list[str]:
    """The lines of one arm: its curve, its score at equal tokens and how far from `base`'s, what it took."""
    runs = [one for one in ended if one["arm"] == arm]
    if not runs:
        return []
    gaps = [equal[arm][seed] - equal[base][seed] for seed in equal[arm].keys() & equal[base].keys()]
    less = f"  less {base}, by seed {middle(gaps)}" if gaps and arm != base else ""
    warm = max(one["cpu"].get("warmup", 0.0) for one in runs)
    curve = "  ".join(
        f"{step}: {middle([dict(one['curve'])[step] for one in runs if step in dict(one['curve'])])}"
        for step, _ in runs[0]["curve"]
    )
    phases = "  ".join(f"{n} {middle([one['cpu'].get(n, 0.0) for one in runs])}" for n in PHASES)
    explained = [one["explained"] for one in runs if one["explained"] is not None]
    warm_ends = [one["explained_warm"] for one in runs if one.get("explained_warm") is not None]
    return [
        f"{arm}, n {len(runs)}: pass@1 {curve}",
        f"    at equal tokens {middle(list(equal[arm].values()))}{less}",
        f"    most of a warm-up {warm:.1f} CPU-s; CPU-s {phases}",
        f"    seconds {middle([one['wall_s'] for one in runs])}  peak MiB {middle([one['peak_mib'] for one in runs])}"
        f"  of the critic {max(one['critic_mib'] for one in runs):.1f}"
        + (f"  explained variance at the end {middle(explained)}" if explained else "")
        + (f", of the warm-up {middle(warm_ends)} (n {len(warm_ends)})" if warm_ends else ""),
    ]


def spread(found: list[dict[str, Any]], arms: list[str]) -> str:
    """A row an arm: ends and spread over seeds, and whether they are those of the first arm."""
    from scipy.stats import levene, ttest_1samp

    ended = [one for one in found if "failed" not in one]
    runs = {arm: {one["seed"]: one for one in ended if one["arm"] == arm} for arm in arms}
    least = {
        seed: min(own[seed]["tokens"] for own in runs.values() if seed in own) for seed in {r["seed"] for r in ended}
    }
    ends = {arm: {seed: at_tokens(one, least[seed]) for seed, one in own.items()} for arm, own in runs.items()}
    lines = [
        "| arm | n | at equal tokens | sd at 25, 50, 100 % | worst | tokens to .8 | masked | within .02 | Levene p |",
        "|---" * 9 + "|",
    ]
    for arm, own in runs.items():
        if len(own) < 2:
            continue
        sds = [statistics.stdev(at_tokens(one, least[s] * part) for s, one in own.items()) for part in (0.25, 0.5, 1)]
        reached = [to_mark(one) for one in own.values()]
        to = (
            f"{statistics.fmean(r for r in reached if r):.0f} ({sum(r is not None for r in reached)})"
            if any(reached)
            else "—"
        )
        masked = [one["masked"] for one in own.values() if one["masked"] is not None]
        gaps = [ends[arm][seed] - ends[arms[0]][seed] for seed in own.keys() & ends[arms[0]].keys()]
        tost = level = "—"
        if arm != arms[0] and len(gaps) > 1:
            low, high = (
                ttest_1samp(gaps, at, alternative=way).pvalue for at, way in ((-MARGIN, "greater"), (MARGIN, "less"))
            )
            tost = f"p {max(low, high):.3f}"
            level = f"{levene(list(ends[arm].values()), list(ends[arms[0]].values())).pvalue:.3f}"
        cells = [arm, len(own), middle(list(ends[arm].values())), ", ".join(f"{sd:.3f}" for sd in sds)]
        cells += [
            f"{min(ends[arm].values()):.3f}",
            to,
            f"{statistics.fmean(masked):.4f}" if masked else "—",
            tost,
            level,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def to_mark(one: dict[str, Any]) -> float | None:
    """Tokens drawn until the held-out score was `MARK`, on the line between two evaluations; None where it never was."""
    points = list(zip(one["spent"], (score for _, score in one["curve"]), strict=True))
    for (before, low), (after, high) in pairwise(points):
        if high >= MARK > low:
            return float(before + (MARK - low) / (high - low) * (after - before))
    return points[0][0] if points[0][1] >= MARK else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("race", choices=list(RACES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--arms", nargs="+", help="some of the arms")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="runs at the same time, of two threads each")
    parser.add_argument("--tune", action="store_true", help="run what chooses the learning rates")
    asked = parser.parse_args()
    race, out = RACES[asked.race], asked.out.resolve()
    arms = [name for name in race.arms if not asked.arms or name in asked.arms]
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.jsonl"
    there = [json.loads(line) for line in file.open()] if file.exists() else []
    if asked.tune:
        arms = [name for name in arms if not race.arms[name].like]
        wanted = [Ask(asked.race, *one) for one in product(arms, TUNING, race.rates)]
    else:
        rates = {arm: best_rate(asked.race, arm, there) for arm in arms}
        wanted = [Ask(asked.race, arm, seed, rates[arm]) for seed, arm in product(range(asked.seeds), arms)]
    names = {(ask.arm, ask.seed, ask.rate) for ask in wanted}
    found = [one for one in there if (one["arm"], one["seed"], one["rate"]) in names]
    names -= {(one["arm"], one["seed"], one["rate"]) for one in found}
    left = [ask for ask in wanted if (ask.arm, ask.seed, ask.rate) in names]
    with ThreadPoolExecutor(asked.jobs) as pool:
        for waiting in as_completed([pool.submit(run, ask, out) for ask in left]):
            found.append(waiting.result())
            if "failed" not in found[-1]:
                with file.open("a") as stream:
                    stream.write(json.dumps(found[-1]) + "\n")
    print(each(found, arms))
    if not asked.tune:
        print(summary(found, arms))
        if asked.race == "losses":
            print(spread(found, arms))
    return 1 if any("failed" in one for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
