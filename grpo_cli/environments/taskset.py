"""Tasksets of the package `verifiers` 0.4: their tasks as rows, and their episodes, played in a Python of their own.

How this works. `TasksetProcess` is a process of the interpreter that the recipe names, which has imported the taskset
(`taskset_process`). `listed` asks it for the tasks. `Taskset` is a harness whose programs are forked from that process: each asks the
endpoint for turns as any harness does, is killed as one, and leaves what its episode was worth in a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from grpo_cli.environments.harness import Harness, Running
from grpo_cli.environments.pool import Fault, interpreter_of
from grpo_cli.errors import DataError, RecipeError, SetupError
from grpo_verifiers.names import near_or_known
from grpo_verifiers.processes.linked import PLAIN_ENVIRONMENT, LinkedProcess, ProcessFailed, ProcessRefused
from grpo_verifiers.processes.pool import foreign_line, foreign_variables, without_secrets

LOAD_S = 180.0
ANSWER_S = 60.0
AT_ONCE = 16
"""Episodes that run at the same time where the recipe does not say how many: each is a process."""
HELD_OUT = 8
"""Of so many tasks one is held out, by a hash of its key."""
OPTIONS = ("split", "size", "interpreter", "options")


class TasksetProcess:
    """The process that has a taskset."""

    def __init__(
        self,
        interpreter: str,
        spec: str,
        options: Mapping[str, Any],
        path: Sequence[str],
        max_turns: int,
        env: Sequence[str] = (),
    ) -> None:
        """`path`: folders to import from; `env`: the variables with a secret that it may read.

        Raises:
            RecipeError: the taskset cannot be loaded or played; with the reason.
            SetupError: the process did not start.
        """
        own = foreign_variables(without_secrets(os.environ, env))
        line = foreign_line(interpreter, "grpo_cli", "from grpo_cli.environments.taskset_process import boot; boot()")
        opening = {"id": spec, "options": dict(options), "path": list(path), "max_turns": max_turns}
        self.process = LinkedProcess(
            lambda link: [*line, str(link), str(os.getpid())],
            {**own, **PLAIN_ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
            on_print=lambda _: None,
        )
        try:
            self.info = self.process.greet(LOAD_S, json.dumps(opening).encode())
        except ProcessRefused as err:
            raise RecipeError(f"`{spec}` cannot be played: {err.why}", place="`environment.verifiers`") from err
        except ProcessFailed as err:
            raise SetupError(f"environment: `{interpreter}` did not load `{spec}`: {err}") from err

    def ask(self, op: str, **question: object) -> dict[str, Any]:
        """The answer to a question.

        Raises:
            SetupError: the process has ended.
            RecipeError: it cannot serve it; with the reason.
        """
        try:
            self.process.ask({"op": op, **question})
            answer = self.process.receive(ANSWER_S)
        except ProcessFailed as err:
            raise SetupError(f"environment: the process of the taskset: {err}") from err
        if "failed" in answer:
            raise RecipeError(f"the taskset: {answer['failed']}", place="`environment.verifiers`")
        return answer


def listed(
    spec: str, split: Literal["train", "test"], options: Mapping[str, Any], base: Path | None, key: str
) -> Iterator[dict[str, Any]]:
    """The tasks of `verifiers:ID` as rows, `prompt` among their columns; `key` names the source for messages.

    `split` is `train`, `test` or `all`: one task of eight is held out, by a hash of its key. `size` is how many are read of the
    taskset, needed where it has no end.

    Raises:
        RecipeError: unknown option, or the taskset cannot be loaded.
        DataError: its tasks are without an end.
    """
    for option in options:
        if option not in OPTIONS:
            said = f"unknown option `{option}` of `verifiers:{spec}`{near_or_known(option, OPTIONS)}"
            raise RecipeError(said, place=key)
    chosen, size = options.get("split", split), options.get("size")
    if chosen not in ("train", "test", "all"):
        raise RecipeError(f"option `split` of `verifiers:{spec}` is train, test or all, got {chosen!r}", place=key)
    if size is not None and (type(size) is not int or size < 1):
        raise RecipeError(f"option `size` of `verifiers:{spec}` is a whole number from 1, got {size!r}", place=key)
    interpreter = interpreter_of(options.get("interpreter") or "python", base)
    rows = _listed(interpreter, spec, json.dumps(options.get("options", {})), str((base or Path()).resolve()), size)
    if rows is None:
        said = f"the tasks of `{spec}` have no end"
        raise DataError(said, place=key, hint=f'say how many: `{{from: "verifiers:{spec}", options: {{size: 256}}}}`')
    for row in rows:
        number = int.from_bytes(hashlib.blake2b(str(row["task_key"]).encode(), digest_size=8).digest())
        if chosen == "all" or (number % HELD_OUT == 0) == (chosen == "test"):
            yield dict(row)


@lru_cache(maxsize=8)
def _listed(
    interpreter: str, spec: str, options: str, folder: str, size: int | None
) -> tuple[Mapping[str, Any], ...] | None:
    process = TasksetProcess(interpreter, spec, json.loads(options), path=[folder, os.getcwd()], max_turns=1)
    try:
        if process.info["infinite"] and size is None:
            return None
        return tuple(process.ask("rows", most=size)["rows"])
    finally:
        process.process.close()


class _Forked:
    """A process that another one forked, with what a `Popen` has of it here."""

    def __init__(self, pid: int, root: Path) -> None:
        self.pid, self.root = pid, root
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        if self.returncode is None:
            with suppress(OSError, ValueError):
                self.returncode = int((self.root / "code").read_text())
        return self.returncode

    def wait(self) -> None:
        """Until it has ended, or its parent is gone too."""
        ends = time.monotonic() + 5
        while self.poll() is None and time.monotonic() < ends:
            time.sleep(0.005)


class RunningTask(Running):
    """The forked process of one episode."""

    def __init__(self, process: _Forked, root: Path, allowed_s: float) -> None:
        self.root, self.folder, self.ends = root, root / "folder", time.monotonic() + allowed_s
        self.fault: Fault | None = None
        self.process = process  # type: ignore[assignment] # what is used of a `Popen`

    def kill(self) -> None:
        """End it and all that it started."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Taskset(Harness):
    """The episodes of one taskset, as programs that ask the endpoint."""

    over = "this model's maximum context length is used up: the turns or tokens of the episode are"
    # their package ends an episode cleanly, and scores it, where a refusal is about the length of the context

    def __init__(
        self,
        spec: str,
        interpreter: str,
        options: Mapping[str, Any],
        *,
        base: Path | None,
        max_turns: int,
        workers: int | None = None,
        env: Sequence[str] = (),
        episode_s: float = 300.0,
    ) -> None:
        """`spec` is the id of the taskset, `options` keys of its `EnvConfig`."""
        super().__init__(
            spec, ["task_number", "task_key"], base=base, workers=workers or AT_ONCE, env=env, episode_s=episode_s
        )
        self.score_name = spec
        path = [str((base or Path()).resolve()), os.getcwd()]
        self._make = partial(TasksetProcess, interpreter, spec, options, path, max_turns, env)
        self._process: TasksetProcess | None = None

    def start(self) -> None:
        """Load the taskset.

        Raises:
            RecipeError: it cannot be played; with the reason.
            SetupError: its process did not start.
        """
        self._process = self._process or self._make()

    def close(self) -> None:
        """End its process, with all episodes, and the endpoint."""
        super().close()
        process, self._process = self._process, None
        if process is not None:
            process.process.close(1.0)

    def launch(self, given: Mapping[str, Any], variables: Mapping[str, str], root: Path) -> Running:
        """Start the process of one episode, with files below `root`."""
        assert self._process is not None
        (root / "folder").mkdir(parents=True)
        for name in ("out", "err"):
            (root / name).touch()
        answer = self._process.ask(
            "play",
            number=given["task_number"],
            key=given["task_key"],
            root=str(root.resolve()),
            variables=dict(variables),
            seed=variables["GRPO_SEED"],
        )
        return RunningTask(_Forked(answer["pid"], root), root, self.episode_s)

    def failure(self, running: Running) -> Fault | None:
        """The error that their package found, by its type."""
        found = _result(running.folder)
        return Fault(str(found["reason"]), str(found["error"])) if "error" in found else None

    def score(self, played: Sequence[tuple[Mapping[str, Any], Path, str]]) -> list[float | Fault | None]:
        """What the taskset says that each episode was worth."""
        return [float(_result(folder)["reward"]) for _, folder, _ in played]


def _result(folder: Path) -> dict[str, Any]:
    """What the process of an episode left; an error where it left nothing."""
    try:
        found: dict[str, Any] = json.loads((folder.parent / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"reason": "no_score", "error": "the episode left no result"}
    return found
