"""The page of all commands: what each does, its examples, arguments and options, from its help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from docs.generate.markdown import cell, code_cell, fenced, head, table
from grpo_cli.app import ORDER, app

ABOUT = """\
Commands in the order in which one comes to need them, as `grpo COMMAND --help` says it. stdout is data, stderr what is said
meanwhile; [exit codes and what `--json` prints](outputs.md) have their page. `grpo --install-completion` lets Tab complete recipes,
runs and keys."""


def commands_page() -> str:
    """`reference/commands.md`."""
    root = typer.main.get_command(app)
    parts = [head("Commands", ABOUT)]
    for name in ORDER:
        for words, command in _with_its_own(f"grpo {name}", root.commands[name]):
            parts += _command(words, command)
    return "\n".join(parts)


def _with_its_own(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _with_its_own(f"{words} {name}", inner)


def _command(words: str, command: Any) -> list[str]:
    about, _, examples = (command.help or "").partition("\b\nExamples:\n")
    parts = [f"{'##' if words.count(' ') == 1 else '###'} `{words}`\n", f"{about.strip()}\n"]
    lines = [line.strip() for line in examples.strip().splitlines()]
    if lines:
        parts.append(fenced("\n".join(lines), "text"))
    context = command.make_context(words, ["--help"], resilient_parsing=True)
    rows = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    rows = [row for row in rows if row[0] != "--help"]
    return (
        [*parts, table(("takes", "means"), ((code_cell(names), cell(about)) for names, about in rows))]
        if rows
        else parts
    )
