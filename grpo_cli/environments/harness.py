"""Programs that play episodes by themselves: how one is started, what it sees, when it is ended, and what its episode is worth.

How this works. `Harness` stands where worlds stand, for jobs that start, ask and close them. `launch` starts the program of one
episode in a session and folder of its own. It sees the columns that `pass` names, the endpoint's address and key, and the
environment without secrets. When it ends its whole process group is killed. A score of the user's runs in a worker that may be
killed; where it fails, or the program did, there is no verdict.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpo_cli.environments.endpoint.server import EpisodeEndpoint
from grpo_cli.environments.pool import Fault
from grpo_cli.environments.step import read_number
from grpo_cli.errors import RecipeError, SetupError
from grpo_verifiers.kinds.functions.asking import Prints
from grpo_verifiers.kinds.functions.conventions import BadFunction, find, place_of
from grpo_verifiers.processes.pool import Done, LoadFailed, Pool, ProcessLimits, Raised, Result, without_secrets
from grpo_verifiers.verifier import Unavailable

AT_ONCE = 64
"""Programs that run at the same time where the recipe does not say how many."""
MOST_PRINTED = 16 * 2**20
"""Bytes that a program may print."""
TAIL = 65_536


class Running:
    """The program of one episode; `allowed_s` are the seconds it may take, which its owner may raise."""

    def __init__(
        self,
        command: Sequence[str],
        given: Mapping[str, Any],
        variables: Mapping[str, str],
        root: Path,
        allowed_s: float,
    ) -> None:
        self.root, self.folder, self.ends = root, root / "folder", time.monotonic() + allowed_s
        self.fault: Fault | None = None
        self.folder.mkdir(parents=True)
        (root / "given.json").write_text(json.dumps(given, ensure_ascii=False, default=str), encoding="utf-8")
        # files and not pipes: nobody has to read while the program writes
        with open(root / "given.json", "rb") as stdin, open(root / "out", "wb") as out, open(root / "err", "wb") as err:
            self.process = subprocess.Popen(
                command, stdin=stdin, stdout=out, stderr=err, cwd=self.folder, env={**variables}, start_new_session=True
            )

    def is_over(self) -> bool:
        """Whether it has ended, or was killed now because it took or printed too much."""
        if self.process.poll() is not None:
            return True
        if time.monotonic() > self.ends:
            self.fault = Fault("harness_timeout", "the harness took longer than `environment.endpoint.episode_s`")
        elif sum((self.root / name).stat().st_size for name in ("out", "err")) > MOST_PRINTED:
            self.fault = Fault("harness_printed", f"the harness printed more than {MOST_PRINTED:,} bytes")
        if self.fault is not None:
            self.kill()
        return self.fault is not None

    def kill(self) -> None:
        """End it and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def last_line(self, name: str = "out") -> str:
        """The last line that is not empty of what it printed, or of its errors (`err`)."""
        with open(self.root / name, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Harness:
    """The programs of one recipe, and the endpoint that they ask."""

    over = "the episode is over: its turns or tokens are used up"
    """The refusal of a request when the budget is used up."""

    def __init__(
        self,
        command: str,
        given: Sequence[str] = (),
        score: str | None = None,
        *,
        base: Path | None = None,
        timeout_s: float = 5.0,
        memory_mb: int = 1024,
        workers: int | None = None,
        env: Sequence[str] = (),
        episode_s: float = 300.0,
    ) -> None:
        """`given` are the columns it is passed; `timeout_s` and `memory_mb` limit one call of `score`; `env` names variables with a
        secret that it may read."""
        self.name, self.given, self.score_name = command, list(given), score
        self.base, self.env, self.episode_s, self.at_once = base, list(env), episode_s, workers or AT_ONCE
        self._prints = Prints(score or command)
        path = [] if base is None else [str(base)]
        limits = ProcessLimits(cpu_s=timeout_s, memory_mb=memory_mb)
        task = f"{__name__}:load"
        self._pool = score and Pool(
            task, {"spec": score, "path": path}, limits=limits, on_print=self._prints, secrets=self.env
        )
        self._endpoint: EpisodeEndpoint | None = None
        self._lock = threading.Lock()
        self.command: list[str] = []
        self.overridden = set[str]()
        """Settings of its requests that are not followed, each of which was noted once."""

    @property
    def tools(self) -> list[dict[str, Any]]:
        """None: a harness offers its own."""
        return []

    @property
    def printed(self) -> int:
        """Lines that the score has printed."""
        return self._prints.count

    @property
    def scores(self) -> bool:
        """Whether the recipe names a score; else verifiers judge what is printed."""
        return self.score_name is not None

    def start(self) -> None:
        """Find the program, and load the score.

        Raises:
            RecipeError: there is no such program or function.
            SetupError: no worker could be started.
        """
        first, *rest = shlex.split(self.name)
        found = sys.executable if first == "python" else shutil.which(str(self._placed(first)))
        if found is None:
            raise RecipeError(f"there is no program `{first}`", place="`environment.harness.command`")
        # it starts in a folder of its own, from which relative names would lead nowhere
        self.command = [os.path.abspath(found), *(str(self._placed(word)) for word in rest)]
        if not self._pool:
            return
        try:
            self._pool.start()
        except LoadFailed as err:
            said = err.message if err.kind == "BadFunction" else f"{err.kind}: {err.message.splitlines()[0]}"
            raise RecipeError(
                f"`{self.score_name}` cannot be used: {said}", place="`environment.harness.score`"
            ) from err
        except Unavailable as err:
            raise SetupError(f"environment: {err}", hint=err.hint) from err

    def close(self) -> None:
        """End the worker of the score and the endpoint."""
        if self._pool:
            self._pool.close()
        with self._lock:
            endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    def endpoint(self, context: int | None) -> EpisodeEndpoint:
        """The endpoint, made when first asked for."""
        with self._lock:
            self._endpoint = self._endpoint or EpisodeEndpoint(context)
            return self._endpoint

    def passed(self, fields: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The columns of a row that the program reads.

        Raises:
            RecipeError: the row lacks one.
        """
        missing = [name for name in self.given if name not in fields]
        if missing:
            raise RecipeError(f"`pass` names the column `{missing[0]}`, which {place or 'a row'} does not have")
        return {name: fields[name] for name in self.given}

    def launch(self, given: Mapping[str, Any], variables: Mapping[str, str], root: Path) -> Running:
        """Start the program of one episode, with files below `root`.

        Raises:
            SetupError: it cannot be started.
        """
        own = without_secrets(os.environ, self.env) | {"PYTHONUNBUFFERED": "1"} | dict(variables)
        try:
            return Running(self.command, given, own, root, self.episode_s)
        except OSError as err:
            raise SetupError(f"the harness `{self.name}` cannot be started: {err}") from err

    def failure(self, running: Running) -> Fault | None:
        """Why a program that has ended well leaves its episode without a verdict, if it left a reason."""
        return None

    def score(self, played: Sequence[tuple[Mapping[str, Any], Path, str]]) -> list[float | Fault | None]:
        """The outcome of each episode, of its row, folder and transcript; None where the function returns none."""
        assert self._pool
        self._prints.allow(len(played))
        results = self._pool.run([(dict(row), str(folder), transcript) for row, folder, transcript in played])
        return [self._outcome(result) for result in results]

    def _outcome(self, result: Result) -> float | Fault | None:
        if isinstance(result, Done):
            found: float | None = result.value["score"]
            return found
        if isinstance(result, Raised):
            message = " ".join(result.message.split())[:300]
            if result.kind == "BadReturn":
                return Fault("bad_return", message)
            return Fault("score_raised", f"`{self.score_name}` raised {result.kind}: {message}{result.at}")
        whys = {"memory": "took more than `environment.memory_mb`", "died": "ended its process"}
        why = whys.get(result.reason, "took longer than `environment.timeout_s`")
        return Fault("score_failed", f"`{self.score_name}` {why}")

    def _placed(self, word: str) -> Path | str:
        path = (self.base or Path()) / word
        return path.resolve() if path.is_file() else word


def load(config: Mapping[str, Any]) -> tuple[Callable[[tuple[Any, str, str]], dict[str, Any]], dict[str, Any]]:
    """The worker's task: the user's score of one episode.

    Raises:
        BadFunction: it is not there, or takes other arguments.
    """
    sys.path[:0] = [folder for folder in [*config["path"], os.getcwd()] if folder not in sys.path]
    spec = config["spec"]
    function = find(spec)
    import inspect

    try:
        inspect.signature(function).bind({}, "", "")
    except TypeError as err:
        raise BadFunction(f"it cannot be called as `{spec}(row, folder, transcript)`: {err}") from err
    except ValueError:
        pass  # a builtin has no signature, and shows what it takes when it is called
    where = f"`{spec}` ({place_of(function)})"

    def work(item: tuple[Any, str, str]) -> dict[str, Any]:
        found = function(*item)
        return {"score": None if found is None else read_number(found, where, "the score")}

    return work, {}


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for the episodes of one call."""
    return tempfile.TemporaryDirectory(prefix="grpo-episodes-", ignore_cleanup_errors=True)
