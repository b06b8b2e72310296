"""Four methods against GRPO and a placebo each, on digits d that become 3d+1 modulo 10, with their working: parts apart
(`split`), credit by the value of cuts (`rredcot`), mixed inputs (`n_grpo`), a teacher that is told the verdict's reason (`distil`).

    PYTHONPATH=.:verifiers OMP_NUM_THREADS=1 python bench/bench_methods.py split OUT.jsonl --tune    # both rates, one more seed
    … bench_methods.py split OUT.jsonl --seeds 0 1 2 3 4
    … bench_methods.py split OUT.jsonl --summary

    352=   ->   <think>352=067</think>\\boxed{067}

The warm-up shows such answers with mistakes: each digit is a chance one with probability NOISE, in the working and the answer alike.
For `split` a digit of the working of APART of the demonstrations is another than in the answer. For `rredcot` the working has a line
a digit, and CUT of the demonstrations end it early, so that the model can answer behind any line. For `distil` the rows have more
digits than the demonstrations, so that nearly all answers are wrong at first, the verdict says which digit is wrong first, all arms are
pulled to the same running average (GRPO by `teacher: prompt`), and the placebo deals the reasons of a step out anew; `to .6` are the
tokens to that held-out score. Arms of a race share world, warm-up, model and number of samples, and each runs at the rate that `--tune` finds best for it,
or at the first where it was not tried. Counted are held-out sampled pass@1 (128 x 4), answers of a group that differ, the share of
right answers that their working contradicts (last ten steps), tokens and CPU seconds of training. Differences are paired by seed:
mean and 95 % t interval.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from race_tasks import joined, write_model

NOISE, APART, CUT = 0.2, 0.3, 0.5
DIGITS = (2, 3, 4)
RATES = (1e-3, 3e-4)
TUNING_SEED = 100
CONSISTENCY = {"verify": {"math": {"primary": True}, "agrees": {"weight": 0}}}


def parts(weight: float) -> dict[str, Any]:
    """The keys of a further part with this weight."""
    own = {"task": {"verifiers": ["math"]}, "consistency": {"verifiers": ["agrees"], "weight": weight}}
    return CONSISTENCY | {"train": {"reward_combine": "split", "split": own}}


ANCHOR: dict[str, Any] = {"when": "all", "mix": 0.1, "template": "{hint} {prompt}"}
LONG, MARK = (5, 6), 0.6


def digits(completion: str, answer: str) -> dict[str, Any]:
    """A verdict on a boxed answer, whose reason says which digit is wrong first."""
    said = completion.rpartition("\\boxed{")[2].partition("}")[0]
    if said == answer:
        return {"score": 1.0}
    wrong = next((i for i, (a, b) in enumerate(zip(said, answer, strict=False)) if a != b), min(len(said), len(answer)))
    return {"score": 0.0, "reason": "wrong_digit", "detail": f"digit {wrong + 1} is wrong"}


ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "split": {
        "grpo": CONSISTENCY,
        "b.5": parts(0.5),
        "b1": parts(1.0),
        "sum10": {"verify": {"math": {"primary": True}, "agrees": {"weight": 10}}},
        "placebo": parts(0.5),
    },
    "rredcot": {
        "grpo": {},
        "rredcot": {"train": {"credit": {"method": "rredcot"}}},
        "milestones": {"train": {"credit": {"method": "milestones", "patterns": {"one": r"\n", "all": r"\n="}}}},
        "placebo": {"train": {"credit": {"method": "rredcot"}}},
    },
    "distil": {
        "grpo": {"train": {"method": "distil"}, "distil": ANCHOR | {"teacher": "prompt"}},
        "distil": {"train": {"method": "distil"}, "distil": ANCHOR | {"teacher": ["reason", "prompt"]}},
        "dead": {"train": {"method": "distil"}, "distil": {"teacher": ["sibling", "reason"]}},
        "placebo": {"train": {"method": "distil"}, "distil": ANCHOR | {"teacher": ["reason", "prompt"]}},
    },
    "n_grpo": {"grpo": {}, "mix": {"sample": {"mix": {"rate": 0.1}}}, "placebo": {"sample": {"mix": {"rate": 0.1}}}},
}


def row(rng: random.Random, race: str, *, shown: bool = False) -> dict[str, str]:
    """A question, its answer, and a demonstration with mistakes; `shown`: a row of the warm-up."""
    asked = [rng.randrange(10) for _ in range(rng.choice(LONG if race == "distil" and not shown else DIGITS))]
    right = [(3 * d + 1) % 10 for d in asked]
    said = [rng.randrange(10) if rng.random() < NOISE else d for d in right]
    thought = list(said)
    if race == "split" and rng.random() < APART:
        at = rng.randrange(len(said))
        thought[at] = (said[at] + rng.randrange(1, 10)) % 10
    question, working = joined(asked), f"{joined(asked)}={joined(thought)}"
    if race == "rredcot":
        lines = [*(f"{a}={b}\n" for a, b in zip(asked, thought, strict=True)), f"={joined(thought)}"]
        working = "".join(lines[: rng.randrange(len(lines))] if rng.random() < CUT else lines)
    return {
        "question": f"{question}=",
        "answer": joined(right),
        "shown": f"<think>{working}</think>\\boxed{{{joined(said)}}}",
    }


def write_world(folder: Path, seed: int, race: str) -> None:
    """train.jsonl, heldout.jsonl and warm.jsonl."""
    for name, count, key in (("train", 512, seed), ("heldout", 128, "held out"), ("warm", 8192, "warm")):
        rng = random.Random(f"{name}/{key}")
        lines = [
            json.dumps(row(rng, race, shown=name == "warm") | {"place": f"{name}-{i}"}) + "\n" for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(lines))


def recipe_of(folder: Path, model: Path, arm: dict[str, Any], seed: int, lr: float, steps: int) -> dict[str, Any]:
    """The recipe of one run."""
    return {
        "model": str(model),
        "data": {
            "train": str(folder / "train.jsonl"),
            "eval": str(folder / "heldout.jsonl"),
            "prompt": "{question}",
            "answer": "{answer}",
            "id": "{place}",
            "plain": True,
        },
        "verify": {"digits": {"python": {"function": f"{__file__}:digits", "public_detail": True, "workers": 1}}}
        if "distil" in arm
        else arm.get("verify", {"math": {}}),
        "sample": {"prompts": 16, "group": 8, "max_tokens": 48} | arm.get("sample", {}),
        "train": {"steps": steps, "lr": lr, "schedule": "constant", "lr_warmup_steps": 3, "seed": seed}
        | arm.get("train", {}),
        **({"distil": arm["distil"]} if "distil" in arm else {}),
        "eval": {"every": 5 if "distil" in arm else steps, "between": None, "samples": 4, "k": [1, 4], "greedy": False},
        "monitor": {"kl": "off"},
        "run": {
            "dir": str(folder / "runs"),
            "name": "run",
            "threads": 1,
            "save_every": 10_000,
            "keep": 1,
            "report": False,
        },
    }


def warmed(folder: Path, race: str, steps: int) -> Path:
    """The run whose weights all arms and seeds start from: a warm-up, and one step that moves next to nothing."""
    weights = folder / "runs" / "run" / "checkpoints" / "step-000001"
    if not weights.exists():
        from grpo_cli.display.choose import make_display
        from grpo_cli.jobs.train.job import Job
        from grpo_cli.recipe.sections.recipe import Recipe

        folder.mkdir(parents=True, exist_ok=True)
        write_world(folder, 0, race)
        write_model(folder / "model")
        phase = {"data": {"from": str(folder / "warm.jsonl")}, "demonstration": [{"template": "{shown}"}]}
        phase |= {"steps": steps, "lr": 3e-3, "muon_lr": 0.015, "batch": 64}
        recipe = recipe_of(folder, folder / "model", {}, 0, 1e-12, 1) | {"warmup": [phase]}
        Job(Recipe.model_validate(recipe), label="warm", base=folder, display=make_display("none")).run()
    return weights


def run_one(ask: tuple[Path, str, str, int, float, int]) -> dict[str, Any]:
    """One run, in a folder of its own."""
    model, race, name, seed, lr, steps = ask
    with tempfile.TemporaryDirectory() as folder:
        return run_in(Path(folder), model, race, name, seed, lr, steps)


def run_in(folder: Path, model: Path, race: str, name: str, seed: int, lr: float, steps: int) -> dict[str, Any]:
    """Train, and measure."""
    from grpo_cli.commands.environment import quiet_libraries

    quiet_libraries()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.train.job import Job
    from grpo_cli.recipe.sections.recipe import Recipe

    class Race(Job):
        spent, eval_cpu = 0.0, 0.0

        def evaluate(self, step: int) -> None:
            began = time.process_time()
            if step == 0:
                Race.spent = began
            super().evaluate(step)
            Race.eval_cpu += time.process_time() - began

    if name == "placebo":
        PLACEBOS[race]()
    write_world(folder, seed, race)
    recipe = recipe_of(folder, model, ARMS[race][name], seed, lr, steps)
    done = Race(Recipe.model_validate(recipe), label="race", base=folder, display=make_display("none")).run()
    lines = done.run.metrics()
    scores = [line for line in lines if "eval/pass@1" in line]
    trained = [line for line in lines if "reward/total/mean" in line]

    drawn, reached = 0.0, None
    for line in lines:
        drawn += line.get("tokens/drawn") or 0.0
        reached = drawn if reached is None and line.get("eval/pass@1", 0.0) >= MARK else reached

    def late(key: str) -> float | None:
        found = [line[key] for line in trained[-10:] if line.get(key) is not None]
        return round(statistics.fmean(found), 4) if found else None

    return {
        "race": race,
        "arm": name,
        "seed": seed,
        "lr": lr,
        "steps": steps,
        "before": scores[0]["eval/pass@1"],
        "after": scores[-1]["eval/pass@1"],
        "after@4": scores[-1]["eval/pass@4"],
        "inconsistent": late("consistency/right_inconsistent"),
        "inverted": late("split/inverted"),
        "distinct": late("unique_answers"),
        "signal": late("group/signal"),
        "tokens": sum(line["tokens/drawn"] for line in trained),
        f"to {MARK}": reached,
        "cpu_s": round(time.process_time() - Race.spent - Race.eval_cpu, 2),
    }


def deal_out() -> None:
    """From now on the scores of further parts are dealt out anew within each group."""
    from grpo_cli.reward.group import Group

    means = Group.means

    def dealt(self: Group, names: list[str]) -> list[float]:
        found = means(self, names)
        # of the group's own texts, so that a second call deals the same
        random.Random(f"{self.row}/{self.texts}").shuffle(found)
        return found

    Group.means = dealt  # type: ignore[method-assign]


def lend_weights() -> None:
    """From now on an answer's segments have the weights of the answer before it with as many."""
    from grpo_cli.train import credit

    weights, last = credit.cut_weights, dict[int, list[float]]()

    def lent(gained: list[float], tokens: list[int], advantage: float) -> list[float]:
        own = weights(gained, tokens, advantage)
        other = last.get(len(own), own)
        last[len(own)] = own
        mean = sum(size * n for size, n in zip(other, tokens, strict=True)) / sum(tokens)
        return [size / mean for size in other]

    credit.cut_weights = lent  # type: ignore[assignment]


def deal_reasons() -> None:
    """From now on the reasons of a step are dealt out anew among its samples; what has none keeps it."""
    from grpo_cli.reward.hints import Hints, dealt_anew

    find = Hints.of

    def dealt(self: Hints, groups: Any, signal: Any) -> Any:
        found = find(self, groups, signal)
        told = dealt_anew([[hint if hint and hint.text else None for hint in own] for own in found])
        return [[new or hint for new, hint in zip(*both, strict=True)] for both in zip(told, found, strict=True)]

    Hints.of = dealt  # type: ignore[method-assign]


def any_neighbours() -> None:
    """From now on the neighbours of a token are those of another, by a fixed permutation of the vocabulary."""
    from grpo_cli.rollout import mixing

    near = mixing.nearest

    def permuted(embeddings: Any, norms: Any, anchors: Any, allowed: Any, k: int) -> Any:
        import torch

        order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(0))
        return near(embeddings, norms, order[anchors], allowed, k)

    mixing.nearest = permuted  # type: ignore[assignment]


PLACEBOS = {"distil": deal_reasons, "split": deal_out, "rredcot": lend_weights, "n_grpo": any_neighbours}


def interval(gaps: list[float]) -> str:
    """Mean and 95 % t interval."""
    from scipy.stats import t

    mean = statistics.fmean(gaps)
    if len(gaps) < 2:
        return f"{mean:+.3f}"
    half = float(t.ppf(0.975, len(gaps) - 1)) * statistics.stdev(gaps) / len(gaps) ** 0.5
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


SHOWN = (
    "before",
    "after",
    "after@4",
    "inconsistent",
    "inverted",
    "distinct",
    "signal",
    "tokens",
    f"to {MARK}",
    "cpu_s",
)


def summary(results: list[dict[str, Any]], race: str) -> str:
    """A line an arm: means over seeds, and what differs from GRPO, paired."""
    own = [one for one in results if one["race"] == race and one["seed"] != TUNING_SEED]
    base = {one["seed"]: one for one in own if one["arm"] == "grpo"}
    lines = [f"| arm | rate | n | {' | '.join(SHOWN)} | after less GRPO, paired |", "|---" * (len(SHOWN) + 4) + "|"]
    for name in ARMS[race]:
        runs = [one for one in own if one["arm"] == name]
        if not runs:
            continue
        cells = [name, f"{runs[0]['lr']:g}", len(runs)]
        for key in SHOWN:
            found = [one[key] for one in runs if one.get(key) is not None]
            cells.append(f"{statistics.fmean(found):.4g}" if found else "—")
        gaps = [one["after"] - base[one["seed"]]["after"] for one in runs if one["seed"] in base]
        lines.append(f"| {' | '.join(map(str, cells))} | {interval(gaps) if gaps and name != 'grpo' else ''} |")
    return "\n".join(lines)


def best_rate(results: list[dict[str, Any]], race: str, name: str) -> float:
    """The rate at which an arm did best in `--tune`; the first before that."""
    tried = [one for one in results if (one["race"], one["arm"], one["seed"]) == (race, name, TUNING_SEED)]
    return max(tried, key=lambda one: one["after"])["lr"] if tried else RATES[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("race", choices=list(ARMS))
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--arms", nargs="+")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--warm-steps", type=int, default=400, help="of the warm-up, which is made once beside the results"
    )
    parser.add_argument("--tune", action="store_true", help="every arm at both rates, with a seed of its own")
    parser.add_argument("--summary", action="store_true", help="print what the file holds, run nothing")
    asked = parser.parse_args()
    results = [json.loads(line) for line in asked.results.read_text().splitlines()] if asked.results.exists() else []
    arms = asked.arms or list(ARMS[asked.race])
    if asked.tune:
        wanted = [(asked.race, name, TUNING_SEED, lr, asked.steps) for name, lr in product(arms, RATES)]
    else:
        wanted = [
            (asked.race, name, seed, best_rate(results, asked.race, name), asked.steps)
            for seed, name in product(asked.seeds, arms)
        ]
    done = {(one["race"], one["arm"], one["seed"], one["lr"], one["steps"]) for one in results}
    if not asked.summary:
        model = warmed(asked.results.with_name(f"warm-{asked.race}").resolve(), asked.race, asked.warm_steps)
        # a process an arm: a placebo changes what its process computes
        with ExitStack() as stack:
            pools = {name: stack.enter_context(get_context("spawn").Pool(1)) for name in arms}
            for ask in wanted:
                if ask in done:
                    continue
                found = pools[ask[1]].apply(run_one, [(model, *ask)])
                results.append(found)
                with asked.results.open("a") as stream:
                    stream.write(json.dumps(found) + "\n")
                print(json.dumps(found), file=sys.stderr, flush=True)
    print(summary(results, asked.race))


if __name__ == "__main__":
    main()
