"""`grpo watch`: the live frame of a running or finished run, from its folder; it never writes there."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from grpo_cli.commands import completing

Face = Literal["auto", "live", "plain", "json"]


def watch(
    run: Annotated[
        str, typer.Argument(help="A run folder, a run's name under --dir, or `last`.", autocompletion=completing.runs)
    ] = "last",
    once: Annotated[
        bool,
        typer.Option("--once", help="Print the frame once and stop, or the lines so far with --display plain or json."),
    ] = False,
    display: Annotated[Face, typer.Option(help="auto: live on a terminal, else one line a step.")] = "auto",
    dir: Annotated[str, typer.Option(help="Where names are looked up.")] = "runs",
    ascii: Annotated[bool, typer.Option("--ascii", help="Plain glyphs only.")] = False,
) -> None:
    """Follow a run from another terminal, or see how one ended.

    \b
    Examples:
      grpo watch last
      grpo watch runs/1127-gsm8k-k3f9 --once
      grpo watch 1127-gsm8k-k3f9 --display json | jq .step
    """
    import sys

    from grpo_cli.run.find import find_run
    from grpo_cli.text import needs_ascii, raw

    folder = find_run(run, dir)  # a wrong name is told before the frames are imported
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
