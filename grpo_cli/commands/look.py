"""Commands that look at runs, at this machine and at names: `watch`, `runs`, `report`, `doctor`, `explain`.

How this works: each parses its words, imports what answers it, and prints that. Nothing here writes to a run but `runs remove`, which
asks first. What `explain` prints is generated from the code, so it cannot be out of date.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from grpo_cli.commands import completing, options
from grpo_cli.errors import UsageError
from grpo_cli.text import real_path, strict_json

Dir = Annotated[str, typer.Option("--dir", help="The folder that holds the runs.")]
Run = Annotated[
    str, typer.Argument(help="A run folder, a run's name under --dir, or `last`.", autocompletion=completing.runs)
]
LookUp = Annotated[str, typer.Option(help="Where names are looked up.")]
Face = Literal["auto", "live", "plain", "json"]


def watch(
    run: Run = "last",
    once: Annotated[
        bool,
        typer.Option("--once", help="Print the frame once and stop, or the lines so far with --display plain or json."),
    ] = False,
    display: Annotated[Face, typer.Option(help="auto: live on a terminal, else one line a step.")] = "auto",
    dir: LookUp = "runs",
    ascii: Annotated[bool, typer.Option("--ascii", help="Plain glyphs only.")] = False,
) -> None:
    """Follow a run from another terminal, or see how one ended.

    \b
    Examples:
      grpo watch last
      grpo watch runs/1127-gsm8k-k3f9 --once
      grpo watch 1127-gsm8k-k3f9 --display json | jq .step
    """
    from grpo_cli.run.find import find_run
    from grpo_cli.text import needs_ascii, raw

    folder = find_run(run, dir)  # a wrong name is refused before the frames are imported
    from grpo_cli.display.choose import can_animate, in_notebook, wants_color
    from grpo_cli.display.watch import RunWatcher, follow_lines, follow_live, print_once

    watching = RunWatcher(folder)
    out = sys.stdout
    plain_glyphs = ascii or needs_ascii(out)
    if once and display in ("plain", "json"):
        follow_lines(watching, out, as_json=display == "json", ascii=plain_glyphs, once=True)
    elif once:
        print_once(watching, raw(out), ascii=plain_glyphs, color=wants_color(out))
    elif display == "live" or (display == "auto" and can_animate(out) and not in_notebook()):
        follow_live(watching, raw(out), ascii=plain_glyphs, color=wants_color(out))
    else:
        follow_lines(watching, out, as_json=display == "json", ascii=plain_glyphs)


runs = typer.Typer(invoke_without_command=True, help="List runs; show, compare and remove them.", rich_markup_mode=None)


@runs.callback()
def _root(
    context: typer.Context,
    dir: Dir = "runs",
    sort: Annotated[
        str, typer.Option(help="started, name, status, recipe, step, score, best, gain, reward, time or size.")
    ] = "started",
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    status: Annotated[
        list[str] | None, typer.Option(help="Only runs of this status, such as running or failed; may be repeated.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the runs under a folder, the newest first.

    \b
    Examples:
      grpo runs
      grpo runs --sort gain
      grpo runs --json | jq -r '.runs[] | select(.status == "done") | .path'
    """
    if context.invoked_subcommand is not None:
        return
    from grpo_cli.jobs.runs import HEADER, SCHEMA, listed, rows_of, table

    found = listed(Path(dir), sort, reverse, status or [])
    if as_json:
        print(strict_json({"schema": SCHEMA, "runs": [one.as_json() for one in found]}))
        return
    if not found:
        print(f"no run under `{dir}`" + (" of this status" if status else ""), file=sys.stderr)
        return
    asked = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if asked else None
    print("\n".join(table(HEADER, rows_of(found), width)))


@runs.command()
def show(
    run: Run = "last",
    dir: Dir = "runs",
    step: Annotated[int | None, typer.Option(min=0, help="Show the samples of this step, turn by turn.")] = None,
    row: Annotated[str | None, typer.Option(help="Of that step the samples of this row (its id) alone.")] = None,
    of: Annotated[Literal["train", "eval"], typer.Option("--of", help="Whose samples --step means.")] = "train",
    as_json: options.AsJson = False,
) -> None:
    """Show one run and how it ended, or the samples of a step.

    \b
    Examples:
      grpo runs show last
      grpo runs show last --step 20
      grpo runs show 1127-gsm8k-k3f9 --json
    """
    from grpo_cli.jobs.runs import lines_of, run_object
    from grpo_cli.run.find import find_run

    folder = find_run(run, dir)
    if step is not None:
        from grpo_cli.jobs.runs import groups_of
        from grpo_cli.statistics.episodes import group_lines

        groups = groups_of(folder, step, of, row)
        if as_json:
            print(strict_json({"schema": 1, "samples": [one.as_json() for group in groups for one in group]}))
        else:
            print("\n\n".join("\n".join(group_lines(group)) for group in groups))
        return
    if row is not None:
        raise UsageError("which step?", place="--row", hint="--row goes with --step N")
    print(strict_json(run_object(folder)) if as_json else "\n".join(lines_of(folder)))


@runs.command()
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN…", help="Two runs or more; each is held against the first.", autocompletion=completing.runs
        ),
    ],
    dir: Dir = "runs",
    as_json: options.AsJson = False,
) -> None:
    """Compare the recipes and the held-out scores of runs.

    It says which keys differ, and pairs the scores by row.

    \b
    Examples:
      grpo runs compare runs/grpo runs/dr-grpo
      grpo runs compare 1127-gsm8k-k3f9 last --json
    """
    from grpo_cli.jobs.runs import SCHEMA, compare_runs, compared_lines
    from grpo_cli.run.find import find_run

    folders = [find_run(name, dir) for name in names]
    if len({real_path(folder.path) for folder in folders}) < max(2, len(folders)):
        raise UsageError("a comparison needs two different runs", hint="grpo runs compare RUN OTHER")
    first, others = compare_runs(folders)
    if as_json:
        body = {"schema": SCHEMA, "first": first.as_json(), "others": [one.as_json() for one in others]}
        print(strict_json(body))
    else:
        print("\n".join(compared_lines(first, others)))


@runs.command()
def remove(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Run folders or names under --dir.", autocompletion=completing.runs),
    ],
    dir: Dir = "runs",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also a run that seems to be running.")] = False,
) -> None:
    """Delete runs, asking first.

    Their checkpoints, samples and logs go with them.

    \b
    Examples:
      grpo runs remove 1127-gsm8k-k3f9
      grpo runs remove $(grpo runs --status failed --json | jq -r '.runs[].path')
    """
    from grpo_cli.jobs.runs import HEADER, removable, rows_of, size_text, table
    from grpo_cli.jobs.runs import remove as delete
    from grpo_cli.run.find import LAST, find_run

    if LAST in names:
        raise UsageError("`last` is not deleted: it may be another run by now", hint="name the run")
    folders = {real_path(folder.path): folder for folder in (find_run(name, dir) for name in names)}
    found = removable(list(folders.values()), force)
    print("\n".join(table(HEADER, rows_of(found))))
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody is here to ask", place="--yes", hint="say --yes to delete these runs")
        if not typer.confirm(f"delete {'this run' if len(found) == 1 else f'these {len(found)} runs'}?"):
            print("nothing was deleted")
            return
    print(f"deleted, {size_text(delete(found))} freed")


def report(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders, names under --dir, or `last`.", autocompletion=completing.runs)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file; without it report.html or comparison.html in the first run."),
    ] = None,
    against: Annotated[list[str] | None, typer.Option(help="A run to compare the first with; may be repeated.")] = None,
    placebo: Annotated[
        list[str] | None,
        typer.Option(help="The same for a run that should not learn; those with `train.control` are found."),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="Put small copies of the rows' images into the page, which others may get.")
    ] = False,
    dir: LookUp = "runs",
) -> None:
    """Write what a run did as one HTML page that works from disk.

    Several runs are laid over each other.

    \b
    Examples:
      grpo report last
      grpo report runs/seed-1 runs/seed-2 runs/seed-3 --out seeds.html
      grpo report runs/grpo --against runs/grpo-random --against runs/dr-grpo
    """
    from grpo_cli.findings.run_data import arms_of, collect
    from grpo_cli.jobs.report.page import write_report
    from grpo_cli.run.find import find_run

    folders = {real_path(f.path): f for f in (find_run(name, dir) for name in [*runs, *(against or [])])}
    placebos = {real_path(f.path): f for f in (find_run(name, dir) for name in placebo or [])}
    if shared := folders.keys() & placebos.keys():
        raise UsageError(f"`{next(iter(shared))}` is both a run and a placebo")
    found = [collect(folder) for folder in folders.values()]
    if out is None:
        if len(runs) > 1:
            raise UsageError(
                "several runs need a place for their common report", place="--out", hint="--out report.html"
            )
        name = "comparison.html" if len(found) + len(placebos) > 1 else "report.html"
        out = found[0].folder.path / name
    arms = arms_of(found, [collect(folder) for folder in placebos.values()])
    typer.echo(write_report(arms, out, images=images))


def doctor(
    run: Annotated[
        str | None, typer.Argument(help="A run folder, a name under --dir, or `last`.", autocompletion=completing.runs)
    ] = None,
    least: Annotated[
        str, typer.Option(help="The least sandbox that will do: namespaces, landlock, weak.")
    ] = "landlock",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    dir: Annotated[str, typer.Option(help="Where names of runs are looked up.")] = "runs",
) -> None:
    """Say what this machine can do, or what is wrong with a run.

    Without a run also what the sandbox holds; with one, what its metrics and samples show to be wrong.

    Exits with 4 if there is no sandbox for model code, with 1 if a finding stands: versions that clash, too little room,
    or, for a run, anything that it shows. Each finding of a run comes with its evidence and the completions behind it.

    \b
    Examples:
      grpo doctor
      grpo doctor --json | jq .sandbox.tier
      grpo doctor last
    """
    if run is not None:
        from grpo_cli.jobs.doctor import examine_run

        raise typer.Exit(examine_run(run, dir, json))
    from grpo_cli.jobs.doctor import examine_machine

    raise typer.Exit(examine_machine(least, json, dir))


def explain(
    name: Annotated[
        str | None, typer.Argument(help="A name; without one the names are listed.", autocompletion=completing.subjects)
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what a verifier, an algorithm, a key or a finding means.

    Verifiers come with examples judged now, keys with a line that is valid, findings with what to do about them.

    \b
    Examples:
      grpo explain
      grpo explain math
      grpo explain dapo
      grpo explain train.prune
      grpo explain filters
      grpo explain W20
      grpo explain math --json
    """
    from grpo_cli.jobs.explain.subjects import SUBJECTS, find

    if name is None:
        listed = {subject.title: sorted(subject.names()) for subject in SUBJECTS}
        lines = [f"{s.title}: {s.brief or ', '.join(listed[s.title])}" for s in SUBJECTS]
        print(strict_json(listed) if as_json else "\n".join(lines))
        return
    found = find(name)
    described = [subject.describe(name) for subject in found]
    if as_json:
        also = {"also": described[1:]} if described[1:] else {}
        print(strict_json(described[0] | also, ensure_ascii=False))
    else:
        print("\n\n".join(subject.render(said) for subject, said in zip(found, described, strict=True)))
