"""The page of exit codes and of JSON: every key that a command or a file of a run has, from `docs/promises.json`."""

from __future__ import annotations

import json
from pathlib import Path

from docs.generate.markdown import code, code_cell, head, table
from grpo_cli.errors import Exit

LISTING = Path(__file__).resolve().parents[1] / "promises.json"
ABOUT = """\
What other programs read: exit codes, the object that `--json` prints on stdout, and the lines of files. The keys are those that tiny
runs of every command wrote (`make promises`), so a key that only a GPU, an environment or a critic brings may be missing here.
`[]` is each item of a list; a word in capitals stands for names that a recipe, a row or a verdict chose. `null` is "not measured".
[What stays as it is](../promises.md) says which of it will stay."""
MEANS = {
    Exit.OK: "done",
    Exit.BAR_MISSED: "a bar was missed (`--fail-under`, a gate), or a finding stands",
    Exit.USAGE: "command line or recipe, or another process trains in the run",
    Exit.DATA: "rows, golds or sample files",
    Exit.SETUP: "this machine: no sandbox, no memory, no model, disk full",
    Exit.TRAINING: "training failed: non-finite numbers, too many samples without a verdict",
    Exit.INTERRUPTED: "stopped by Ctrl-C, after a clean save",
    Exit.TERMINATED: "stopped by SIGTERM, its deadline or a closed terminal, after a clean save",
}
FILES = ("metrics.jsonl", "samples/*.jsonl", "run.json", "pairs.jsonl", "verify --out")
TITLES = {
    "verify --out": "Lines of `grpo verify --out`",
    "pairs.jsonl": "Lines of `pairs.jsonl`",
    "samples/*.jsonl": "Lines of `samples/*.jsonl`, `eval/*.jsonl`",
}


def outputs_page() -> str:
    """`reference/outputs.md`."""
    codes = ((str(int(one)), MEANS[one]) for one in Exit)
    parts = [
        head("JSON and exit codes", ABOUT),
        "## Exit codes\n",
        table(("code", "means"), codes),
        "Where several apply the higher of 4, 3, 1 wins.\n",
    ]
    shapes = json.loads(LISTING.read_text())["outputs"]
    for name in sorted(shapes, key=lambda name: name in FILES):
        title = TITLES.get(name, f"`{name}`" if name in FILES else f"`grpo {name} --json`")
        rows = ((code_cell(path), kind.replace(" | ", " or ")) for path, kind in shapes[name].items())
        parts += [f"## {title}\n", table(("key", "holds"), rows)]
    parts += [
        "## `metrics.jsonl`\n",
        f"One line a step; its names have [a page of their own](../metrics.md), such as {code('reward/total/mean')}.\n",
    ]
    return "\n".join(parts)
