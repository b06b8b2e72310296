"""The README's picture of the live display, drawn from a recorded run: `python docs/draw_live.py RUN [STEP] > docs/live.svg`.

The frame is the one a terminal of 120 x 40 showed after that step; nothing in it is made up.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

from rich.console import Console
from rich.terminal_theme import MONOKAI

from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.frame.state import RunState
from grpo_cli.display.watch import info_of, seconds_of
from grpo_cli.run.find import find_run
from grpo_cli.run.follow import is_evaluation, is_step

WIDTH, HEIGHT = 120, 40


def main() -> None:
    folder = find_run(sys.argv[1])
    lines = folder.metrics()
    last = int(sys.argv[2]) if len(sys.argv) > 2 else max(folder.steps())
    began = seconds_of(folder.manifest().get("started")) or 0.0
    state = RunState(began)
    known = info_of(folder)
    state.set(
        info=replace(
            known,
            command="train",
            recipe=known.recipe.rsplit("/", 1)[-1],
            device=known.device.replace("1 threads", "1 thread"),
        )
    )
    at = began
    for metrics in lines:
        if is_evaluation(metrics) and metrics["step"] < last:
            state.evaluated(metrics)
        if is_step(metrics) and metrics["step"] <= last:
            state.step(
                metrics, view_samples(list(folder.samples(metrics["step"]))) if metrics["step"] == last else None
            )
            at = seconds_of(metrics.get("at")) or at
    info = state.snapshot(at).info
    total = info.prompts * info.group
    state.act("generate", total * 3 // 4, total, at)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    state.set(keys=True)
    for text in frame_lines(state.snapshot(at), WIDTH, HEIGHT):
        console.print(text)
    svg = console.export_svg(title="grpo train", theme=MONOKAI, unique_id="grpo")
    # rich names a font on the net; the reader's own fixed-width font does as well
    sys.stdout.write(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))


if __name__ == "__main__":
    main()
