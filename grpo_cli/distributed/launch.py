"""`grpo train` on several processes: torchrun starts the ranks, this parent forwards signals and prints what failed first.

The parent imports no torch. A rank finds its terminal again through the parent's descriptors, since torchrun's own
output goes to a file. Signals are sent to the ranks only, never to torchrun, which would kill them in the middle of a
step.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from grpo_cli.distributed.network import check_port_free, interface_settings, is_own, own_address
from grpo_cli.distributed.peers import StopRequests, stop_signals
from grpo_cli.errors import Exit, SetupError, UsageError
from grpo_cli.text import visible_lines

if TYPE_CHECKING:
    from grpo_cli.recipe.sections.recipe import Launch, Recipe

CONTROL, TALK = "GRPO_CONTROL", "GRPO_TALK"
DRIVERS = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))
PR_SET_PDEATHSIG = 1
TOGETHER = (Exit.BAR_MISSED, Exit.INTERRUPTED, Exit.TERMINATED)
"""Codes with which all ranks end together, and which rank 0 has explained."""
UNSIGNALLED = "--signals-to-handle=SIGQUIT"
"""Slurm signals every process of a task, and torchrun would end the ranks in the middle of a step."""
GRACE_S = 5.0
"""Seconds that ranks have to stop after the second signal."""
WAIT_S = 30.0
"""After so many seconds without the other machines this one prints that it waits."""
ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*: (\d+).*?exitcode\s*: -(\d+)", re.DOTALL)
"""The first failure in torchrun's own words, where a signal ended it."""


def is_rank() -> bool:
    """Whether this process was started by `launch`."""
    return CONTROL in os.environ


def is_main_rank() -> bool:
    """Whether this process talks to the user: rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def gpu_count() -> int:
    """Visible GPUs, by the driver's own tool, so that no torch is loaded.

    `CUDA_VISIBLE_DEVICES` only hides GPUs: on a machine without a driver there are none, whatever it names.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # a driver (CUDA, CUDA in WSL or ROCm) has a tool or a device file; importing torch would take seconds
    if shutil.which("nvidia-smi") is None and not any(place.exists() for place in DRIVERS):
        return 0
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() and part.strip() != "-1"])
    if shutil.which("nvidia-smi") is None:
        return 0
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in found.stdout.splitlines())


@dataclass(frozen=True)
class Nodes:
    """The machines of a run, and which of them this is; rank 0 of the whole lives on machine 0."""

    count: int = 1
    rank: int = 0
    rendezvous: str = ""

    @classmethod
    def of(cls, asked: Launch, environ: Mapping[str, str] = os.environ) -> Nodes:
        """As the recipe has it; where it does not number this machine, Slurm does.

        Raises:
            SetupError: nobody numbers this machine.
        """
        if asked.nodes == 1:
            return cls()
        rank = asked.node_rank if asked.node_rank is not None else environ.get("SLURM_NODEID")
        if rank is None or not 0 <= int(rank) < asked.nodes:
            raise SetupError(
                f"which of the {asked.nodes} machines is this?",
                hint="set `launch.node_rank`, or start through `srun`, one task a machine",
            )
        return cls(asked.nodes, int(rank), asked.rendezvous or "")

    def torchrun(self, world: int) -> list[str]:
        """Arguments for `world` processes on this machine."""
        each = f"--nproc-per-node={world}"
        if self.count == 1:
            return ["--standalone", each]
        host, _, port = self.rendezvous.rpartition(":")
        place = [f"--master-addr={host}", f"--master-port={port}"]
        return [f"--nnodes={self.count}", f"--node-rank={self.rank}", *place, each]


def choose_processes(recipe: Recipe) -> tuple[Nodes, int]:
    """The machines of a run, and how many processes it has on this one.

    Raises:
        UsageError, SetupError: what the recipe asks for cannot be shared out, or is not here.
    """
    from grpo_cli.recipe.sections.course import check_processes  # every command imports this module

    wanted, nodes = recipe.launch, Nodes.of(recipe.launch)
    completions = recipe.sample.prompts * recipe.sample.group
    if completions % nodes.count:
        raise UsageError(
            f"{completions} completions a step do not divide over {nodes.count} machines",
            hint="change `sample.prompts` or `sample.group`",
        )
    if not recipe.train.runs_grpo or recipe.stages is not None:
        return nodes, 1  # whatever this machine has
    world = choose_world(wanted.gpus, wanted.cpu_ranks, completions // nodes.count)
    check_processes(wanted.strategy, world * nodes.count)
    return nodes, world


def refuse_stdin(processes: int) -> None:
    """Raises UsageError where a recipe on stdin would be read by several processes."""
    if processes > 1:
        raise UsageError("a recipe on stdin runs in one process", hint="save it to a file, or set `launch.gpus=1`")


def choose_world(asked: int | str, cpu_ranks: int, completions: int) -> int:
    """The number of processes on this machine. With `auto` it is the number of GPUs among which the machine's
    completions divide evenly.

    Raises:
        SetupError: more GPUs asked than there are, or a batch that does not divide.
    """
    there = gpu_count()
    if there == 0:
        if isinstance(asked, int) and asked > 1:
            raise SetupError(f"`launch.gpus` asks for {asked} GPUs, there are none here")
        world = cpu_ranks
    elif asked == "auto":
        # 1 always divides
        return max(n for n in range(1, there + 1) if completions % n == 0)
    else:
        world = int(asked)
        if world > there:
            raise SetupError(f"`launch.gpus` asks for {world} GPUs, there are {there} here")
    if completions % world:
        raise SetupError(
            f"{completions} completions a step do not divide over {world} processes",
            hint="change `sample.prompts` or `sample.group`",
        )
    return world


def meeting_settings(nodes: Nodes, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables with which several machines find each other.

    Raises:
        SetupError: they cannot meet at `launch.rendezvous`.
    """
    if nodes.count == 1:
        return {}
    found = interface_settings(nodes.rendezvous, environ)
    if nodes.rank == 0:
        check_port_free(nodes.rendezvous)
    return found


def launch(
    world: int,
    argv: Sequence[str],
    nodes: Nodes,
    meanwhile: Callable[[Path], AbstractContextManager[None]] | None = None,
) -> int:
    """Run `grpo ARGV` as `world` ranks on this machine and return the exit code of the whole.

    `meanwhile` is entered as long, with the folder that parent and ranks share.

    Raises:
        SetupError: several machines cannot meet at `launch.rendezvous`.
    """
    from grpo_verifiers.processes.pool import allowed_cores  # every command imports this module

    with tempfile.TemporaryDirectory(prefix="grpo-ranks-") as folder:
        control = Path(folder)
        environ = os.environ | {CONTROL: folder, TALK: str(os.getpid()), "LOGLEVEL": "CRITICAL"}
        environ |= meeting_settings(nodes, environ)
        environ.setdefault("OMP_NUM_THREADS", str(max(1, allowed_cores() // world)))
        # `-P`: no module of the current folder, which may have come with a model, stands in for one of theirs;
        # this interpreter, not a `torchrun` on the path, which may belong to another environment
        command = [sys.executable, "-P", "-m", "torch.distributed.run", *nodes.torchrun(world), UNSIGNALLED]
        with (control / "torchrun.log").open("w") as log:
            process = subprocess.Popen(
                [*command, "--no-python", sys.executable, "-P", "-u", "-m", "grpo_cli", *argv],
                env=environ,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                # a Ctrl-C at the terminal reaches its foreground group: the ranks get it from us, once
                start_new_session=True,
                preexec_fn=_prepare_torchrun,
            )
            around = nullcontext() if meanwhile is None else meanwhile(control)
            with _forwarded(control, process, is_quiet=nodes.rank > 0) as signals, around:
                code = _waited(process, control, nodes)
        # rank 0 appended to our files through descriptors of its own: what is printed next goes behind that, not over it
        for target in (1, 2):
            with contextlib.suppress(OSError):  # a terminal or a pipe has no position
                os.lseek(target, 0, os.SEEK_END)
        return _verdict(control, code, signals.code)


def _waited(process: subprocess.Popen[bytes], control: Path, nodes: Nodes) -> int:
    """torchrun's exit code; prints once that, and where, this machine waits for the others."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(WAIT_S if nodes.count > 1 else None)
    if not list(control.glob("rank-*.pid")):  # torchrun starts ranks when all machines are there
        host, _, port = nodes.rendezvous.rpartition(":")
        own = own_address(host, int(port))
        print(f"machine {nodes.rank} waits for the others at {nodes.rendezvous}", file=sys.stderr)
        if is_own(own):
            hint = (
                f"here `{host}` is {own}, this machine itself: where others have to find it, name an address they see"
            )
        else:
            hint = (
                f"does each of the {nodes.count} machines run the same command, and does a firewall close port {port}?"
            )
        print(f"\nhint: {hint}", file=sys.stderr)
    return process.wait()


def _prepare_torchrun() -> None:
    """In the child, before torchrun: a signal to the whole group must end no rank in the middle of a step."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_rank() -> None:
    """In a rank: die with torchrun, note the process id, and talk where the parent talks (rank 0) or into a file."""
    control, rank = Path(os.environ[CONTROL]), os.environ["RANK"]
    die_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # torchrun ignores both, and a child inherits that
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    (control / f"rank-{rank}.pid").write_text(str(os.getpid()))
    for target in (1, 2):
        name = f"/proc/{os.environ[TALK]}/fd/{target}" if rank == "0" else control / f"rank-{rank}.log"
        handle = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(handle, target)
        os.close(handle)


def end_rank(text: str, code: int) -> NoReturn:
    """In a rank: write how it ended, for the parent to print, and end: the process group may wait for others.

    A process that has no parent of ours prints it itself.
    """
    text = visible_lines(text)
    if CONTROL in os.environ:
        rank = os.environ["RANK"]
        word = {"rank": int(rank), "code": code, "text": text, "at": time.time()}
        (Path(os.environ[CONTROL]) / f"rank-{rank}.end").write_text(json.dumps(word))
    else:
        print(text, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)


class _forwarded:
    """While inside, SIGINT and SIGTERM (other stop signals as one) go to the ranks, which stop at once at the second; what does not is killed.

    `is_quiet`: no rank talks here. `code` is that of the last signal.
    """

    def __init__(self, control: Path, process: subprocess.Popen[bytes], is_quiet: bool) -> None:
        self.control, self.process, self.is_quiet = control, process, is_quiet
        self.stop_requests, self.code = StopRequests(), 0

    def __enter__(self) -> _forwarded:
        self.before = {n: signal.signal(n, self._take) for n in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self.stop_requests.counts(number):
            return
        number = number if number == signal.SIGINT else signal.SIGTERM
        self.code = 128 + number
        ranks = list(self.control.glob("rank-*.pid"))
        if not ranks:  # torchrun still starts, or waits for other machines: nobody is there to heed it
            print("interrupted before any process had started", file=sys.stderr)
            self._kill()
            return
        if self.is_quiet and self.stop_requests.count == 1:
            print("interrupted: machine 0 finishes this step and saves; again to stop now", file=sys.stderr)
        for file in ranks:
            try:
                os.kill(int(file.read_text()), number)
            except (ProcessLookupError, ValueError):
                continue
        if self.stop_requests.count == 2:
            later = threading.Timer(GRACE_S, self._kill)
            later.daemon = True
            later.start()
        elif self.stop_requests.count > 2:
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the ranks die with torchrun


def _verdict(control: Path, code: int, signalled: int) -> int:
    """The code of the first rank that ended badly, after its own words; torchrun's log where no rank left any."""
    log = control / "torchrun.log"
    killed = ROOT_CAUSE.search(log.read_text(errors="replace")) if log.is_file() else None
    if killed is not None and not signalled and not (control / f"rank-{killed[1]}.end").exists():
        name = signal.Signals(int(killed[2])).name
        print(f"error: rank {killed[1]} was ended by {name}", file=sys.stderr)
        if name == "SIGKILL":
            print("\nhint: out of memory? `dmesg` shows it; go on with `--resume`", file=sys.stderr)
        return int(Exit.SETUP)
    # the earliest failure: later ones only lost the connection to it
    ends = sorted((json.loads(f.read_text()) for f in control.glob("rank-*.end")), key=lambda end: end["at"])
    bad = next((end for end in ends if end["code"] not in (0, None)), None)
    if bad is not None:
        if bad["text"]:
            place = "" if bad["rank"] == 0 else f"rank {bad['rank']} failed first\n"
            print(place + bad["text"], file=sys.stderr)
        elif bad["rank"] != 0 and bad["code"] not in TOGETHER:
            print(f"rank {bad['rank']} failed first", file=sys.stderr)
            _tail(control / f"rank-{bad['rank']}.log")
        return int(bad["code"])
    if code != 0 and signalled:
        return signalled
    if code != 0:
        print("error: a process ended without a word (killed, out of memory?)", file=sys.stderr)
        for file in [*sorted(control.glob("rank-*.log")), log]:
            _tail(file)
        return int(Exit.SETUP)
    return 0


def _tail(file: Path, most: int = 30) -> None:
    if file.is_file():
        print("\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-most:]), file=sys.stderr)
