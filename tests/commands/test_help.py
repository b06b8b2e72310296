"""`--help` of every command in a terminal of 80 columns: whole sentences, in the order of use."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
import typer.main
from typer.testing import CliRunner

from grpo_cli.app import ORDER, app


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


ALL = list(commands(typer.main.get_command(app)))


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")


def shown(path: tuple[str, ...]) -> str:
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("path", ALL, ids=[" ".join(path) or "grpo" for path in ALL])
def test_help_fits_into_eighty_columns_and_cuts_no_sentence(path: tuple[str, ...]) -> None:
    usage, *lines = shown(path).splitlines()
    assert len(usage) <= 80 and all(len(line) <= 80 for line in lines)
    names = ("runs...",)  # an argument that may be given several times
    cut = [line for line in lines if "..." in line and not line.strip().startswith(names)]
    assert cut == []
    assert [line for line in lines if line.endswith("\N{HORIZONTAL ELLIPSIS}")] == []


def test_commands_stand_in_the_order_of_use() -> None:
    text = shown(())
    listed = [line.split()[0] for line in text[text.index("Commands:") :].splitlines()[1:] if line.strip()]
    assert listed == list(ORDER)
    assert set(ORDER) == {path[0] for path in ALL if path}
    before = listed.index
    assert before("init") < before("check") < before("train") < before("report") < before("export")


@pytest.mark.parametrize("path", [(), ("audit",), ("runs",)])
def test_every_command_is_listed_with_a_whole_sentence(path: tuple[str, ...]) -> None:
    text = shown(path)
    lines = [line for line in text[text.index("Commands:") :].splitlines()[1:] if line.strip()]
    assert lines and all(line[2] != " " and line[-1] in ".?" for line in lines)
