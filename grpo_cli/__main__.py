"""The command `grpo`, also as `python -m grpo_cli`: its first line before the rest is imported."""

from __future__ import annotations

import os
import signal
import sys

from grpo_cli.commands.opening import open_command


def main() -> None:
    """Run the command line."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        # recipes and rows name files in UTF-8, and in this locale Python could open none of them; streams stay as they are
        os.environ["PYTHONUTF8"] = "1"
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding if sys.stdout is not None else "ascii")
        os.execv(sys.executable, [sys.executable, "-X", "utf8=1", *sys.orig_argv[1:]])
    open_command(sys.argv[1:])
    from grpo_cli.app import main as run

    try:
        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is the end: no traceback out of it


if __name__ == "__main__":
    main()
