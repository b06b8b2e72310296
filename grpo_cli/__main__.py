"""The command `grpo`, also as `python -m grpo_cli`: its first line before the rest is imported."""

from __future__ import annotations

import signal
import sys

from grpo_cli.commands.opening import open_command


def main() -> None:
    """Run the command line."""
    open_command(sys.argv[1:])
    from grpo_cli.app import main as run

    try:
        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is the end: no traceback out of it


if __name__ == "__main__":
    main()
