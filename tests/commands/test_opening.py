"""Imports are made without the collector, which is as it was afterwards."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys

from grpo_cli.commands.opening import ended_by_ctrl_c, without_collecting


def test_the_collector_rests_inside_and_works_again_after() -> None:
    assert gc.isenabled()
    with without_collecting():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()


def test_a_failed_import_switches_it_on_again() -> None:
    try:
        with without_collecting():
            raise ImportError
    except ImportError:
        pass
    assert gc.isenabled()
    gc.unfreeze()


def test_ctrl_c_in_an_import_ends_at_once_whatever_the_library_catches() -> None:
    code = (
        "import os, signal\n"
        "from grpo_cli.commands.opening import ended_by_ctrl_c\n"
        "with ended_by_ctrl_c():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except BaseException:\n"
        "        pass\n"
        "print('went on')\n"
    )
    signals = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, **signals)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted: nothing had begun\n")


def test_the_usual_handler_is_back_after_the_imports() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ended_by_ctrl_c():
        pass
    assert signal.getsignal(signal.SIGINT) is before
