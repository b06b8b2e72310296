"""The command `grpo`: one line a command; each command lives in `commands/` and imports what is heavy itself.

How this works: `main` gets the words of the command line. It makes both streams able to spell our glyphs, hands them to
the command, and turns what ends the command into an exit code: a `UserError` becomes its message and code, a signal one
line, a closed pipe silence. A process that torchrun started returns its message to the launcher instead of printing it.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer
from typer.core import TyperGroup

from grpo_cli import __version__
from grpo_cli.commands.files import export, init, schema
from grpo_cli.commands.look import doctor, explain, report, runs, watch
from grpo_cli.commands.measure import audit, check, evaluate, probe, verify
from grpo_cli.commands.opening import take_ctrl_c_back, wipe
from grpo_cli.commands.work.chat import chat
from grpo_cli.commands.work.pairs import pairs
from grpo_cli.commands.work.sweep import sweep
from grpo_cli.commands.work.train import train
from grpo_cli.distributed.launch import end_rank, enter_rank, is_rank
from grpo_cli.errors import Exit, SetupError, UserError, out_of_memory
from grpo_cli.text import spell_plainly, visible_lines, visible_streams

ORDER = (
    "init", "check", "verify", "audit", "probe", "train", "watch", "sweep", "runs", "report", "doctor", "eval", "chat", "pairs",
    "export", "explain", "schema",
)  # fmt: skip
"""Commands as a person comes to need them: before a run, the run, after it, and what explains them."""


class InOrderOfUse(TyperGroup):
    """Lists the commands in `ORDER`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Names in the order of `grpo --help`."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    name="grpo",
    cls=InOrderOfUse,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Fine-tune language models on rewards a program can verify.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"grpo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Verifiable-reward fine-tuning: one recipe, one verifier definition, three jobs."""
    context.with_resource(
        visible_streams()
    )  # rows, models, rewards and libraries may put anything into what is printed


app.command()(train)
app.command()(sweep)
app.command("eval")(evaluate)
app.command()(verify)
app.command()(probe)
app.command()(pairs)
app.command()(chat)
app.command()(check)
app.add_typer(audit, name="audit")
app.command()(watch)
app.add_typer(runs, name="runs")
app.command()(report)
app.command()(explain)
app.command()(doctor)
app.command()(init)
app.command()(export)
app.command()(schema)


def name_resume(args: list[str]) -> list[str]:
    """A bare `--resume` means the recipe's newest run; typer's options always take a value."""
    out = []
    for i, arg in enumerate(args):
        out.append(arg)
        if arg == "--resume" and (i + 1 == len(args) or args[i + 1].startswith("-")):
            out.append("last")
    return out


def main() -> None:
    """Run the command line; a user's mistake becomes its message and exit code, a closed pipe is silent."""
    if not is_rank():
        sys.exit(_run(lambda err: print(visible_lines(err.render()), file=sys.stderr)))
    enter_rank()
    told: list[str] = []
    try:
        code = _run(lambda err: told.append(err.render()))
    except Exception:  # noqa: BLE001 - the parent tells what failed first; a traceback from each rank would bury it
        told, code = [traceback.format_exc()], 1
    end_rank(told[0] if told else "", code)


def _run(tell: Callable[[UserError], None]) -> int:
    try:
        code = _run_command(tell)
        sys.stdout.flush()
    except OSError as err:
        if err.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at its end
        tell(SetupError("the output cannot be written: the disk is full"))
        return int(Exit.SETUP)
    return code


def _run_command(tell: Callable[[UserError], None]) -> int:
    for stream in (sys.stdout, sys.stderr):
        spell_plainly(stream)
    take_ctrl_c_back(sys.argv[1:])
    try:
        app(args=name_resume(sys.argv[1:]))
    except SystemExit as leave:
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":  # typer's sign that the reader of a pipe has gone
            return int(Exit.OK)
        if _is_untold_stop(leave):
            _say_stopped(leave.code)
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except UserError as err:
        wipe()
        sys.stdout.flush()
        tell(err)
        return int(err.code)
    except KeyboardInterrupt:
        _say_stopped(Exit.INTERRUPTED)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except FileNotFoundError:
        try:
            os.getcwd()
        except FileNotFoundError:  # a relative path means nothing any more
            wipe()
            tell(SetupError("the current folder is gone", hint="`cd` into one that is there"))
            return int(Exit.SETUP)
        raise
    except Exception as err:
        if (told := out_of_memory(err)) is None:
            raise
        wipe()
        sys.stdout.flush()
        tell(told)
        return int(told.code)
    finally:
        wipe()
    return int(Exit.OK)


def _is_untold_stop(leave: SystemExit) -> bool:
    """Whether a signal ended the command where none of its own words did: before there is a display, or in one that shows nothing."""
    from grpo_cli.resilience.interrupt import Interrupted

    seen: BaseException | None = leave
    while seen is not None and not isinstance(seen, Interrupted | KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


def _say_stopped(code: object) -> None:
    """One line; of several ranks the process that started them prints it."""
    wipe()
    if not is_rank():
        with suppress(OSError, ValueError):  # the terminal may be what has gone
            print("terminated" if code == Exit.TERMINATED else "interrupted", file=sys.stderr)
