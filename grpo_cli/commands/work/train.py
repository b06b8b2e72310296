"""`grpo train`: parse, call, print."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from grpo_cli.commands.quick_import import without_collecting
from grpo_cli.distributed.launch import Nodes, choose_world, is_main_rank, is_rank, launch
from grpo_cli.errors import UsageError

SCHEMA = 1


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe file, the name of a shipped recipe, or - for stdin; with --resume RUN the run's own."
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key; may be repeated."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Continue this run (a folder or a name under runs/); without one the recipe's newest.",
        ),
    ] = None,
    resume_anyway: Annotated[
        bool,
        typer.Option("--resume-anyway", help="Allow changed keys that do not touch the training itself."),
    ] = False,
    display: Annotated[str, typer.Option(help="auto, live, plain, json or none.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one summary object on stdout.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check recipe, rows and golds, show the plan, stop.")
    ] = False,
) -> None:
    """Train a model on rewards that the recipe's verifiers give.

    \b
    Examples:
      grpo train quickstart
      grpo train recipes/gsm8k-qwen2.5-0.5b.yaml --set train.steps=50
      grpo train my.yaml --resume
      grpo train --resume runs/1127-my-k3f9
    """
    from grpo_cli.recipe.checking.strategy import check_processes
    from grpo_cli.recipe.reading.load import find, load

    if recipe is None:
        if resume is None:
            raise UsageError("no recipe", hint="name one, such as `quickstart`, or a run with `--resume RUN`")
        checked, base, label, resume = recipe_of_run(resume, sets or [])
    else:
        checked = load(recipe, sets or [])
        base = Path() if recipe == "-" else find(recipe).parent
        label = "stdin" if recipe == "-" else Path(recipe).stem
    quiet_libraries()
    if dry_run:
        show_plan(checked, base)
        return
    if not is_rank():
        wanted, nodes = checked.launch, Nodes.of(checked.launch)
        completions = checked.sample.prompts * checked.sample.group
        if completions % nodes.count:
            raise UsageError(
                f"{completions} completions a step do not divide over {nodes.count} machines",
                hint="change `sample.prompts` or `sample.group`",
            )
        world = choose_world(wanted.gpus, wanted.cpu_ranks, completions // nodes.count)
        check_processes(wanted.strategy, world * nodes.count)
        if world * nodes.count > 1:
            if recipe == "-":
                raise UsageError(
                    "a recipe on stdin runs in one process", hint="save it to a file, or set `launch.gpus=1`"
                )
            raise typer.Exit(launch(world, sys.argv[1:], nodes))
        pin_one_gpu()
    from grpo_cli.display.choose import make_display

    shown = make_display(display if is_main_rank() else "none")
    with without_collecting():
        from grpo_cli.jobs.train.job import Job
        from grpo_cli.resilience.resume import find_run

    run = find_run(checked, resume, anyway=resume_anyway) if resume else None
    outcome = Job(checked, label=label, base=base, display=shown).run(run)
    if as_json and is_main_rank():
        print(json.dumps(summary(outcome)))
    sys.stdout.flush()
    raise typer.Exit(int(outcome.code))


def recipe_of_run(named: str, sets: list[str]) -> tuple[Any, Path, str, str]:
    """The recipe in a run's folder, the folder its data paths count from, its name, and the run's folder.

    `named` is a folder, a name under `runs/`, or `last`.
    """
    from grpo_cli.recipe.reading.load import load
    from grpo_cli.run.find import find_run

    run = find_run(named)
    manifest = run.manifest()
    return (
        load(str(run.path / "recipe.yaml"), sets),
        Path(manifest.get("base") or "."),
        manifest.get("recipe", run.name),
        str(run.path),
    )


def show_plan(recipe: Any, base: Path) -> None:
    """Rows, golds and batch arithmetic on stdout; nothing is written and torch is not loaded."""
    from grpo_cli.data.audit import audit_golds
    from grpo_cli.data.rows import load_rows
    from grpo_cli.recipe.arithmetic import plan
    from grpo_cli.recipe.checking.strategy import STRATEGIES
    from grpo_cli.recipe.reading.dump import to_yaml
    from grpo_cli.reward.judge import Judge

    judge = Judge.of(recipe, base)
    try:
        judge.start()
        rows = load_rows(recipe.data, "train", base)
        audit = audit_golds(rows, judge.verifiers, recipe.data.on_bad_gold, judge.rule)
    finally:
        judge.close()
    arithmetic = plan(recipe, len(audit.rows)).text()
    print(to_yaml(recipe))
    print(arithmetic)
    if recipe.launch.strategy != "ddp":
        print(f"{recipe.launch.strategy}: {STRATEGIES[recipe.launch.strategy]}")
    if audit.dropped:
        print(f"{len(audit.dropped)} of {len(rows)} rows dropped for a bad gold")


def quiet_libraries() -> None:
    """Other libraries' bars, telemetry and advice off, before they are imported."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")


def pin_one_gpu() -> None:
    """Hide all GPUs but the first from this process: TRL would otherwise split or replicate the model silently."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[0] if visible is not None else "0"


def summary(outcome: Any) -> dict[str, Any]:
    """The one object of `--json`."""
    return {
        "schema": SCHEMA,
        "run": str(outcome.run.path),
        "steps": outcome.steps,
        "status": outcome.status,
        "before": measured(outcome.before),
        "after": measured(outcome.after),
        "seconds": {name: round(value, 3) for name, value in outcome.seconds.items()},
        "checkpoint": str(outcome.checkpoint) if outcome.checkpoint else None,
    }


def measured(metrics: dict[str, Any] | None) -> dict[str, Any] | None:
    """pass@1 with interval and n, sampled; greedy beside it where it was measured."""
    if metrics is None:
        return None
    found = {"pass@1": metrics["eval/pass@1"], "ci": _ci(metrics, "eval/pass@1"), "n": metrics["eval/n"]}
    found |= {
        key.removeprefix("eval/"): value
        for key, value in metrics.items()
        if re.fullmatch(r"eval/pass@\d+", key)
    }
    found["think"] = metrics["eval/think"]
    if "eval/greedy" in metrics:
        greedy = {
            "pass@1": metrics["eval/greedy"],
            "ci": _ci(metrics, "eval/greedy"),
            "n": metrics["eval/greedy/n"],
        }
        found["greedy"] = greedy
    return found


def _ci(metrics: dict[str, Any], key: str) -> list[float]:
    return [metrics[f"{key}/low"], metrics[f"{key}/high"]]
