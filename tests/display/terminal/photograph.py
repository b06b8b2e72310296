"""What real terminals show of a recorded run: `python -m tests.display.terminal.photograph RUN FOLDER` (`make frames`).

For each size a terminal of tmux runs the live display over the run's records; what stands on its screen goes to
FOLDER/SIZE.txt, with its colours to SIZE.dark.svg and SIZE.light.svg. Among them: resized while it paints, plain glyphs
(LANG=C), no colour, the help page, and the screen after the end. Nothing is made up but the moment within the step.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
from rich.text import Text

from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.protocol import KeyRequests
from grpo_cli.display.terminal.live import LiveDisplay
from grpo_cli.display.watch import card_of
from grpo_cli.run.find import find_run
from grpo_cli.run.follow import is_evaluation, is_step
from grpo_cli.run.info import info_of

ROOT = Path(__file__).parents[3]
READY_S, SETTLE_S = 60.0, 1.5


@dataclass(frozen=True)
class Shot:
    """A terminal and what is done in it before the picture is taken."""

    name: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    then: tuple[int, int] | None = None
    """Resized to this while frames are painted."""
    environ: dict[str, str] = field(default_factory=dict)
    ends: bool = False


SHOTS = (
    *(Shot(f"{w}x{h}", (w, h)) for w, h in ((45, 10), (60, 15), (80, 24), (100, 30), (120, 40), (160, 50), (220, 60))),
    Shot("80x24-ascii", (80, 24), environ={"LC_ALL": "C"}),
    Shot("120x40-ascii", (120, 40), environ={"LC_ALL": "C"}),
    Shot("80x24-no-color", (80, 24), environ={"NO_COLOR": "1"}),
    Shot("80x24-help", (80, 24), keys=("?",)),
    Shot("120x40-sample", (120, 40), keys=("n", "j", "j")),
    Shot("120x40-to-80x24", (120, 40), then=(80, 24)),
    Shot("45x10-to-120x40", (45, 10), then=(120, 40)),
    Shot("80x24-end", (80, 24), ends=True),
)


def replay(run: str, ends: bool) -> None:
    """In the terminal: the display over the records, in the middle of the next step, until it is killed."""
    folder = find_run(run)
    display = LiveDisplay(sys.stderr, ascii=os.environ.get("LC_ALL") == "C", color="NO_COLOR" not in os.environ)
    info = replace(info_of(folder), command="train", log=str(folder.log_path))
    display.start(replace(info, log=""))
    display.offer(KeyRequests())
    lines = folder.metrics()
    newest = max(int(m["step"]) for m in lines if is_step(m))
    for metrics in lines:
        if is_evaluation(metrics):
            display.evaluated(metrics)
        if is_step(metrics):
            display.step(metrics, view_samples(list(folder.samples(newest))) if metrics["step"] == newest else None)
    display.note("good", f"saved {folder.path}/checkpoints/step-{newest:06d}")
    if ends:
        display.finish(card_of(folder))
        time.sleep(600)
    for done in range(10_000):
        total = info.prompts * info.group
        display.phase("generate", done % (total + 1), total)
        time.sleep(0.1)


class Terminal:
    """A session of tmux on a server of its own."""

    def __init__(self, shot: Shot, run: Path) -> None:
        # a name for each, since the server before may still be closing when the next one opens
        self.socket = f"grpo-{os.getpid()}-{shot.name}"
        here = run.parents[1]  # paths on the screen are as a person reads them there
        environ = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'verifiers'}", **shot.environ}
        words = [
            sys.executable,
            "-m",
            "tests.display.terminal.photograph",
            "--replay",
            str(run.relative_to(here)),
            *(["--end"] if shot.ends else []),
        ]
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
        width, height = map(str, shot.size)
        self.tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            width,
            "-y",
            height,
            f"cd {shlex.quote(str(here))}; env {given} {shlex.join(words)}",
        )
        self.tmux("set", "-g", "status", "off")

    def tmux(self, *words: str) -> str:
        """The output of a command."""
        done = subprocess.run(["tmux", "-u", "-L", self.socket, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self, *more: str) -> str:
        """What stands there now."""
        return self.tmux("capture-pane", "-p", *more)

    def wait(self, said: str) -> None:
        """Until the screen says this."""
        until = time.monotonic() + READY_S
        while said not in self.screen():
            if time.monotonic() > until:
                raise TimeoutError(self.screen())
            time.sleep(0.2)

    def close(self) -> None:
        """End it."""
        self.tmux("kill-server")


def photograph(shot: Shot, run: Path, out: Path) -> None:
    """One picture."""
    terminal = Terminal(shot, run)
    try:
        terminal.wait("time " if shot.ends else "generating")
        for key in shot.keys:
            terminal.tmux("send-keys", key)
        if shot.then is not None:
            terminal.tmux("resize-window", "-x", str(shot.then[0]), "-y", str(shot.then[1]))
        time.sleep(SETTLE_S)
        (out / f"{shot.name}.txt").write_text(terminal.screen(), encoding="utf-8")
        coloured = terminal.screen("-e")
    finally:
        terminal.close()
    width = (shot.then or shot.size)[0]
    for name, theme in (("dark", MONOKAI), ("light", DEFAULT_TERMINAL_THEME)):
        console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(coloured), end="", soft_wrap=True)
        svg = console.export_svg(title="grpo train", theme=theme, unique_id="grpo")
        # rich names a font on the net; the reader's own fixed-width font does as well
        (out / f"{shot.name}.{name}.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))


def main() -> None:
    words = sys.argv[1:]
    if words[0] == "--replay":
        replay(words[1], "--end" in words)
        return
    out = Path(words[1])
    out.mkdir(parents=True, exist_ok=True)
    for shot in SHOTS:
        if len(words) < 3 or shot.name in words[2:]:
            photograph(shot, Path(words[0]).resolve(), out)


if __name__ == "__main__":
    main()
