"""The host's side: distributes episodes over killable workers with limits of their own, and describes their failures.

An episode stays with the worker that began it. If that worker is killed because of another episode, the episode is
recreated in the next worker. A fault of its own ends the episode without a verdict. The traceback of each kind of fault
is logged once.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_cli.environments.step import Step
from grpo_cli.environments.worker import Ask, Kind, Play, digest
from grpo_cli.errors import RecipeError, SetupError
from grpo_verifiers.kinds.functions.asking import Prints
from grpo_verifiers.processes.pool import Done, LoadFailed, Pool, ProcessLimits, Raised, Result, allowed_cores
from grpo_verifiers.verifier import Unavailable

log = logging.getLogger("grpo_verifiers")

MOST_LOGGED = 20
"""Number of different faults that are logged in full."""


def interpreter_of(name: str, base: Path | None) -> str:
    """The program of a recipe's `interpreter`; a link to one stays a link, by which it finds its packages.

    Raises:
        RecipeError: there is none, or it is older than what runs here.
    """
    place = (base or Path()) / name
    found = sys.executable if name == "python" else str(place.absolute()) if place.is_file() else shutil.which(name)
    if found is None:
        raise RecipeError(f"there is no program `{name}`", place="`environment.interpreter`")
    said = subprocess.run(
        [found, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, text=True
    )
    if said.stdout.strip() != "True":
        raise RecipeError(f"`{name}` is no Python from 3.11 on", place="`environment.interpreter`")
    return found


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an episode has no verdict: a short stable code, and one line for people.

    `provoked`: the actions led to the fault twice, the second time in a recreated environment, so they are its cause.
    """

    reason: str
    text: str
    provoked: bool = False


@dataclass(slots=True)
class World:
    """The host's handle of one episode's environment."""

    play: Play
    row: Mapping[str, Any]
    seed: int
    actions: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()

    def ask(self, what: Any, action: str | None = None) -> Ask:
        """The request for its worker; `action` is the newest action."""
        actions = self.actions if action is None else (*self.actions, action)
        return Ask(self.play, what, None, self.seed, actions)


class Worlds:
    """The environments of one recipe, in worker processes."""

    def __init__(
        self,
        name: str | Sequence[str],
        options: Mapping[str, Any],
        *,
        kind: Kind = "python",
        path: Sequence[str] = (),
        timeout_s: float = 5.0,
        memory_mb: int = 1024,
        workers: int | None = None,
        env: Sequence[str] = (),
        interpreter: str | None = None,
        mcp: Mapping[str, Any] | None = None,
    ) -> None:
        """`name` is the recipe's value of `kind`; only tools may be several. `path`: more folders to import from. The
        time limit holds for one step, the memory limit for a worker. `env`: variables with secrets that the environment
        may read. `interpreter` is the Python of the workers, left out ours; `mcp` the arguments of `ServerTools`."""
        specs = [name] if isinstance(name, str) else list(name)
        self.kind, self.name, self.workers = kind, ", ".join(specs), workers or allowed_cores()
        self._prints, self._calls = Prints(self.name), 0
        self._logged: set[str] = set()
        config = {"kind": kind, "specs": specs, "options": dict(options), "path": list(path), "mcp": mcp}
        limits = ProcessLimits(cpu_s=timeout_s, memory_mb=memory_mb)
        task = "grpo_cli.environments.worker:load"
        self._pools = [
            Pool(task, config, workers=1, limits=limits, on_print=self._prints, secrets=env, interpreter=interpreter)
            for _ in range(self.workers)
        ]
        self.info: Mapping[str, Any] = {}

    def start(self) -> None:
        """Load the class in a first worker.

        Raises:
            RecipeError: it cannot be imported, made with the options, or acted in.
            SetupError: no worker could be started.
        """
        try:
            self.info = self._pools[0].start()
        except LoadFailed as err:
            said = err.message if err.kind == "BadFunction" else f"{err.kind}: {err.message.splitlines()[0]}"
            what = said if err.kind == "BadFunction" else f"`{self.name}` cannot be imported: {said}"
            raise RecipeError(what, place=f"`environment.{self.kind}`") from err
        except Unavailable as err:
            raise SetupError(f"environment: {err}", hint=err.hint) from err

    def close(self) -> None:
        """End all workers."""
        for pool in self._pools:
            pool.close()

    @property
    def printed(self) -> int:
        """Lines that environments have printed."""
        return self._prints.count

    @property
    def demonstrates(self) -> bool:
        """Whether the class has `demonstrate`; known after `start`."""
        return bool(self.info.get("demonstrates"))

    def refuse_silent(self) -> None:
        """Raises RecipeError if the class has no `demonstrate`; call it after `start`."""
        if not self.demonstrates:
            raise RecipeError(
                f"`{self.name}` has no method `demonstrate`, which returns an action that is possible now",
                place="`warmup`",
                hint="add it, or say `warmup.demonstration` over columns of the rows",
            )

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The schemas of its tools; known after `start`. Empty if actions are not tool calls."""
        return [dict(tool) for tool in self.info.get("tools", ())]

    @property
    def scores(self) -> bool:
        """Whether it scores episodes itself (else verifiers judge); known after `start`."""
        return self.kind == "python" or bool(self.info.get("scores"))

    def open(self, rows: Sequence[tuple[Mapping[str, Any], int]]) -> list[tuple[World, str | Fault]]:
        """An environment for each row and seed, with the result of `reset`."""
        self._calls += 1
        worlds = [World((self._calls, i), row, seed) for i, (row, seed) in enumerate(rows)]
        asks = [replace(world.ask("reset"), row=world.row) for world in worlds]
        opened: list[tuple[World, str | Fault]] = []
        for world, found in zip(worlds, self._answers(worlds, asks, "reset"), strict=True):
            if isinstance(found, Fault):
                opened.append((world, found))
                continue
            world.observed = (str(found["observation"]),)
            opened.append((world, world.observed[0]))
        return opened

    def step(self, acted: Sequence[tuple[World, str]]) -> list[Step | Fault]:
        """The step that each action led to; all workers run at once."""
        worlds = [world for world, _ in acted]
        answers = self._answers(worlds, [world.ask("step", action) for world, action in acted], "step")
        out: list[Step | Fault] = []
        for (world, action), found in zip(acted, answers, strict=True):
            if isinstance(found, Fault):
                out.append(found)
                continue
            step = Step(**{**found, "parts": tuple(found["parts"])})
            world.actions, world.observed = (*world.actions, action), (*world.observed, step.observation)
            out.append(step)
        return out

    def score(self, worlds: Sequence[World]) -> list[float | Fault | None]:
        """The outcome of each episode, which this ends; None if the environment returns none."""
        answers = self._answers(worlds, [world.ask("score") for world in worlds], "score")
        return [found if isinstance(found, Fault) else found["score"] for found in answers]

    def demonstrate(self, worlds: Sequence[World]) -> list[str | Fault]:
        """A legal action for each episode."""
        answers = self._answers(worlds, [world.ask("demonstrate") for world in worlds], "demonstrate")
        return [found if isinstance(found, Fault) else str(found["action"]) for found in answers]

    def _answers(self, worlds: Sequence[World], asks: Sequence[Ask], what: str) -> list[Mapping[str, Any] | Fault]:
        self._prints.allow(len(asks))
        # one call for each worker, all at once; an episode stays with the worker that began it
        parts: dict[int, list[int]] = {}
        for i, ask in enumerate(asks):
            parts.setdefault(ask.play[1] % self.workers, []).append(i)
        futures: list[tuple[list[int], Future[list[Result]]]] = [
            (mine, self._pools[number].submit([asks[i] for i in mine])) for number, mine in parts.items()
        ]
        results: dict[int, Result] = {}
        for mine, future in futures:
            results |= zip(mine, future.result(), strict=True)
        # try a failed action once more: the worker may have been killed, or have run out of memory, because of another
        # episode. A fault that happens again is caused by the actions. Episodes that were lost together with a worker
        # are tried after these
        acts = what in ("step", "score")
        failed = [i for i, one in results.items() if not isinstance(one, Done) and not _is_server(one)] if acts else []
        gone = [i for i, one in results.items() if isinstance(one, Done) and one.value.get("lost")]
        for i in (*sorted(failed), *sorted(gone)):
            # allow the time to recreate the environment
            again = replace(asks[i], row=worlds[i].row, texts_digest=digest(list(worlds[i].observed)), again=True)
            # each repeated action may take as long as the first time
            patience = [float(1 + len(again.actions))]
            for _ in range(2 if acts and i in gone else 1):
                results[i] = self._pools[again.play[1] % self.workers].run([again], patience)[0]
                if isinstance(results[i], Done):
                    break
        return [self._read(results[i], what, is_second=acts) for i in range(len(asks))]

    def _read(self, result: Result, what: str, *, is_second: bool) -> Mapping[str, Any] | Fault:
        if isinstance(result, Done):
            found: Mapping[str, Any] = result.value
            return found
        name = f"`{what}` of `{self.name.rpartition(':')[2]}`"
        if isinstance(result, Raised):
            message = " ".join(result.message.split())[:300]
            fault = Fault("environment_raised", f"{name} raised {result.kind}: {message}{result.at}", is_second)
            if result.kind in ("BadReturn", "NotRepeated"):  # our own messages already name the method
                fault = Fault("bad_return", result.message, is_second and result.kind == "BadReturn")
            elif _is_server(result):
                fault = Fault("tool_server", f"{name}: {message}")
        else:
            codes = {
                "timeout": ("timeout", f"{name} took longer than `environment.timeout_s`"),
                "no_reply": ("timeout", f"{name} took longer than `environment.timeout_s`"),
                "memory": ("memory", f"{name} took more than `environment.memory_mb`"),
                "died": ("worker_died", f"{name} ended its process"),
            }
            unknown = "worker_unavailable", "no process for environments could be started"
            fault = Fault(*codes.get(result.reason, unknown), is_second and result.reason in codes)
        if fault.text not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(fault.text)
            # otherwise the sample has no verdict, which is reported with the counts of verdicts
            if fault.provoked or not self.scores:
                log.warning("environment: %s; further ones like it are only counted", fault.text)
            if isinstance(result, Raised):
                log.info("%s", result.traceback)
        return fault


def _is_server(result: Result) -> bool:
    """Whether a server that tools or an environment run on failed: no action is to blame, and none is asked again."""
    return isinstance(result, Raised) and result.kind == "ToolServerFailed"
