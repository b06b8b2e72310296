"""`grpo eval`: parse, call, print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_cli.errors import Exit, SetupError

if TYPE_CHECKING:
    from grpo_cli.jobs.evaluate.compare import Paired
    from grpo_cli.measure.evaluation import Evaluation, Measured
    from grpo_cli.statistics.estimate import Interval

SCHEMA = 1


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint, a run, a model folder or a hub id.")],
    recipe: Annotated[
        str | None, typer.Option(help="The recipe to measure with; a checkpoint brings its own.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override one key, such as data.eval=FILE or eval.samples=8."
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="OTHER", help="Measure this too and compare, paired by prompt.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the samples go; default eval.jsonl in the checkpoint.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling.")] = 0,
    fail_under: Annotated[float | None, typer.Option(help="Exit 1 if pass@1 is below this.")] = None,
    display: Annotated[str, typer.Option(help="auto, live, plain, json or none.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one object on stdout.")] = False,
) -> None:
    """Measure pass@1, pass@k and maj@k of a model with its recipe's verifiers.

    \b
    Examples:
      grpo eval runs/1127-quickstart-k3f9
      grpo eval runs/A/checkpoints/step-000040 --against runs/B/checkpoints/step-000040
      grpo eval Qwen/Qwen2.5-0.5B-Instruct --recipe gsm8k-qwen2.5-0.5b --set eval.samples=16
    """
    from grpo_cli.commands.work.train import pin_one_gpu, quiet_libraries

    quiet_libraries()
    pin_one_gpu()
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.evaluate.compare import compare
    from grpo_cli.jobs.evaluate.run import measure_place
    from grpo_cli.resilience.opened import find_place
    from grpo_cli.run.lines import write_records

    place = find_place(checkpoint, recipe, sets or [])
    other = find_place(against, recipe, sets or []) if against else None
    path = out or (place.folder / "eval.jsonl" if place.folder else None)
    shown = make_display(display)
    try:
        found = measure_place(place, shown, seed)
        reference = measure_place(other, shown, seed, "evaluate other") if other else None
    finally:
        shown.close()
    if path is not None:
        try:
            write_records(path, found.sampled.records)
            if found.greedy is not None:
                write_records(path.with_suffix(".greedy.jsonl"), found.greedy.records)
        except OSError as err:
            raise SetupError(
                f"cannot write the samples: {err.strerror}", place=str(path), hint="set `--out`"
            ) from err
    paired = compare(reference, found) if reference else None
    if as_json:
        print(json.dumps(as_object(checkpoint, found, against, reference, paired)))
    else:
        print(
            "\n".join(table(found, path) + (comparison(against or "", reference, paired) if paired else []))
        )
    if fail_under is not None and found.sampled.pass_1.mean < fail_under:
        raise typer.Exit(int(Exit.BAR_MISSED))


def as_object(
    checkpoint: str,
    found: Evaluation,
    against: str | None,
    reference: Evaluation | None,
    paired: Paired | None,
) -> dict[str, Any]:
    """The one object of `--json`."""
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "checkpoint": checkpoint,
        "n": found.sampled.pass_1.n,
        "pass@1": found.sampled.pass_1.mean,
        "ci": [found.sampled.pass_1.low, found.sampled.pass_1.high],
        "pass@k": {str(k): interval.as_json() for k, interval in found.sampled.pass_k.items()},
        "maj@k": {str(k): value for k, value in found.sampled.maj_k.items()},
        "greedy": found.greedy.pass_1.as_json() if found.greedy else None,
        "without_verdict": found.sampled.without_verdict,
        "truncated": found.sampled.truncated,
        "think": found.sampled.think,
        "seconds": round(found.sampled.seconds, 3),
        "compare": None,
    }
    if paired is not None and reference is not None:
        out["compare"] = {
            "against": against,
            "pass@1": reference.sampled.pass_1.mean,
            "difference": paired.sampled.difference.as_json(),
            "p": paired.sampled.p_value,
            "detectable": paired.sampled.detectable,
            "greedy": {
                "only_this": paired.greedy_only_b,
                "only_other": paired.greedy_only_a,
                "p": paired.greedy_p,
            },
        }
    return out


def table(found: Evaluation, path: Path | None) -> list[str]:
    """What a person reads."""
    s = found.sampled
    lines = [f"pass@1   {_pm(s.pass_1)}   n {s.pass_1.n} prompts, sampled"]
    for k, interval in s.pass_k.items():
        lines.append(f"{f'pass@{k}':<8} {_pm(interval)}   maj@{k} {s.maj_k[k]:.3f}")
    if found.greedy is not None:
        lines.append(f"greedy   {_pm(found.greedy.pass_1)}   n {found.greedy.pass_1.n} prompts")
    lines.append(_tail(s))
    if path is not None:
        lines.append(f"samples  {path}")
    return lines


def comparison(against: str, reference: Evaluation | None, paired: Paired) -> list[str]:
    """The paired comparison, with the difference it could have seen."""
    assert reference is not None
    d = paired.sampled
    lines = [
        "",
        f"against  {against}: pass@1 {reference.sampled.pass_1.mean:.3f}",
        f"differs  {d.difference.mean:+.3f} [{d.difference.low:+.3f}, {d.difference.high:+.3f}]   p {d.p_value:.2g}"
        f"   paired by prompt, n {d.difference.n}; differences of {d.detectable:.3f} or more are found at 80 % power",
    ]
    if paired.greedy_p is not None:
        lines.append(
            f"greedy   right only here {paired.greedy_only_b}, only there {paired.greedy_only_a}"
            f"   p {paired.greedy_p:.2g} (exact McNemar)"
        )
    return lines


def _pm(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _tail(s: Measured) -> str:
    parts = [f"length   {s.mean_tokens:.1f} tokens" if s.mean_tokens is not None else "length   —"]
    if s.truncated is not None:
        parts.append(f"truncated {s.truncated:.1%}")
    if s.without_verdict:
        parts.append(f"without verdict {s.without_verdict}")
    return "   ".join(parts)
