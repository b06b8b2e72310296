"""The worker's side: creates environments from the recipe, and keeps them between the turns of their episodes.

How this works: `load` imports what the recipe names: a class of the protocol, functions as tools, a class of TRL's, or an
environment of the package `verifiers`. Each becomes an `EnvironmentFactory`, whose objects have `reset` and `step`. `Worker.work`
answers one question of the host about one episode.

A worker that is killed because of one episode loses its other episodes too. Those are recreated from row, seed and the
actions so far. An episode whose environment then gives different answers gets no verdict.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from grpo_cli.environments.step import Step, awaited, kind_of, method_of, read_number, read_step, read_text
from grpo_verifiers.kinds.functions.conventions import BadFunction, find, place_of
from grpo_verifiers.kinds.functions.value import BadReturn
from grpo_verifiers.names import near_or_known
from grpo_verifiers.verifier import Unavailable

if TYPE_CHECKING:
    from grpo_cli.environments.tools.mcp import ServerTools

# Making environments.

Kind = Literal["python", "tools", "trl", "verifiers", "openenv"]
WORLDS = {
    name: f"grpo_cli.environments.worlds.{name}:{name.title()}"
    for name in ("keydoor", "guess", "calculator", "textworld", "gymnasium", "textarena")
}
"""The worlds that are shipped. The last three play games of a package of that name."""
METHODS = {"reset": ("row", "seed"), "step": ("action",)}
"""Required methods of an environment, and their arguments."""
PYTHON = "python"
"""The tool that is shipped: code in the sandbox."""


@dataclass(frozen=True)
class EnvironmentFactory:
    """Creates an environment; holds its name for messages, and its abilities."""

    make: Callable[..., Any]
    name: str
    place: str
    scores: bool
    demonstrates: bool = False
    tools: list[Mapping[str, Any]] = field(default_factory=list)


def environment_factory_of(
    kind: Kind, specs: Sequence[str], options: Mapping[str, Any], mcp: Mapping[str, Any] | None = None
) -> EnvironmentFactory:
    """Import what a recipe names; `mcp` are the arguments of `ServerTools`, whose tools stand beside those of functions or a class.

    Raises:
        BadFunction: it does not exist, or is not usable as an environment. Exceptions of the import pass through.
    """
    servers = None
    if mcp is not None:
        from grpo_cli.environments.tools.mcp import ServerTools

        servers = ServerTools(**mcp)
    if kind == "tools":
        return _of_functions(specs, options, servers)
    (spec,) = specs
    if kind == "trl":
        return _of_trl(spec, options, servers)
    if kind == "openenv":
        from grpo_cli.environments.openenv import maker

        make, demonstrates = maker(spec, options)
        return EnvironmentFactory(make, spec, "", True, demonstrates)
    if kind == "python":
        return _of_class(spec, options)
    from grpo_cli.environments.foreign import VerifiersWorld, loaded

    env, faults = loaded(spec, options)
    return EnvironmentFactory(lambda **_: VerifiersWorld(env, faults), spec, "", True)


def _of_functions(specs: Sequence[str], options: Mapping[str, Any], servers: ServerTools | None) -> EnvironmentFactory:
    from grpo_cli.environments.tools.mcp import joined
    from grpo_cli.environments.tools.world import ToolWorld, tools_of

    if options:
        raise BadFunction("`environment.options` are for a class: functions are called as they are")
    functions = list[Callable[..., Any]]()
    for spec in specs:
        if spec != PYTHON:
            functions.append(find(spec))
            continue
        from grpo_cli.environments.tools.python_code import python, start

        try:
            start()
        except Unavailable as err:
            raise BadFunction(f"the tool `{PYTHON}` cannot run here: {err}; {err.hint}") from err
        functions.append(python)
    tools = tools_of(functions)

    def make() -> ToolWorld:
        own, begin = joined(tools, servers)
        return ToolWorld(own, None, begin)

    every = make().tools
    return EnvironmentFactory(
        make,
        ", ".join(every),
        place_of(functions[0]) if functions else "",
        False,
        tools=[tool.schema for tool in every.values()],
    )


def _of_class(spec: str, options: Mapping[str, Any]) -> EnvironmentFactory:
    # `environments:NAME` is an environment of this package; any other spec is a module path
    room, _, name = spec.partition(":")
    if room == "environments" and name not in WORLDS:
        raise BadFunction(f"unknown world `{spec}`{near_or_known(name, WORLDS)}")
    make = find(WORLDS[name] if room == "environments" else spec)
    check(make, spec, options)
    # for a function, inspect the object that it returns
    owner = make if inspect.isclass(make) else make(**copy.deepcopy(dict(options)))
    for method in METHODS:
        if not callable(getattr(owner, method, None)):
            what = f"`{spec}`" if owner is make else f"{kind_of(owner)}, which `{spec}` made,"
            raise BadFunction(
                f"{what} has no method `{method}`: an environment has `reset(row, seed)` and `step(action)`"
                " (a class made for TRL stands under `environment.trl`)"
            )
    for method, arguments in METHODS.items():
        static = isinstance(inspect.getattr_static(owner, method), staticmethod | classmethod)
        bound = not inspect.isclass(owner) or static
        try:
            signature = inspect.signature(getattr(owner, method))
        except (TypeError, ValueError):
            continue  # a builtin has no signature; wrong arguments show when it is called
        try:
            signature.bind(*(() if bound else (owner,)), *arguments)
        except TypeError as err:
            raise BadFunction(
                f"`{method}{signature}` of `{spec}` cannot be called as `{method}({', '.join(arguments)})`: {err}"
            ) from err
    try:
        scores, demonstrates = (method_of(owner, name, spec) is not None for name in ("score", "demonstrate"))
    except BadReturn as err:
        raise BadFunction(str(err)) from err
    return EnvironmentFactory(make, spec.rpartition(":")[2], place_of(make), scores, demonstrates)


def _of_trl(spec: str, options: Mapping[str, Any], servers: ServerTools | None) -> EnvironmentFactory:
    from grpo_cli.environments.tools.mcp import joined
    from grpo_cli.environments.tools.world import OWN, ToolWorld, tools_of

    factory = find(spec)
    check(factory, spec, options)

    def make(**given: Any) -> ToolWorld:
        inner = factory(**given)
        # inspect the class: reading the object's members would evaluate its properties
        names = [name for name, _ in inspect.getmembers(type(inner), predicate=inspect.isfunction)]
        if "reset" not in names:
            raise BadFunction(f"`{spec}` has no method `reset`: TRL's environments have `reset(**columns)`")
        tools = [getattr(inner, name) for name in names if name not in OWN and not name.startswith("_")]
        if not tools:
            raise BadFunction(f"`{spec}` has no public method beside {', '.join(OWN)}: those are its tools")
        own, begin = joined(tools_of(tools), servers)
        return ToolWorld(own, inner, begin)

    first = make(**options)
    return EnvironmentFactory(
        make,
        spec.rpartition(":")[2],
        place_of(factory),
        callable(getattr(first.inner, "get_reward", None)),
        tools=[tool.schema for tool in first.tools.values()],
    )


def check(make: Callable[..., Any], spec: str, options: Mapping[str, Any]) -> None:
    """Raises BadFunction if `environment.options` do not fit its constructor."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**options)
    except TypeError as err:
        raise BadFunction(f"`{spec}` cannot be made with the options {sorted(options)}: {err}") from err


Play = tuple[int, int]
"""Identifies an episode: the number of the call in the run, and of the episode in the call."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to one episode.

    `actions` are all actions taken, the newest last. `again`: the environment may be recreated and replayed to its
    former state; `texts_digest` is the hash of the texts that it gave until then.
    """

    play: Play
    what: Literal["reset", "step", "score", "demonstrate"]
    row: Mapping[str, Any] | None
    seed: int
    actions: tuple[str, ...] = ()
    texts_digest: str = ""
    again: bool = False


class NotRepeated(BadReturn):
    """A recreated environment gave different observations."""


@dataclass(slots=True)
class _Live:
    """A running environment: the actions taken, and the sum of its rewards."""

    inner: Any
    taken: int = 0
    earned: float = 0.0
    observed: list[str] = field(default_factory=list)


class Worker:
    """The environments of one worker process."""

    def __init__(self, make: Callable[..., Any], name: str, options: Mapping[str, Any]) -> None:
        self.make, self.name, self.options = make, name, options
        self.live: dict[Play, _Live] = {}

    def work(self, ask: Ask) -> dict[str, Any]:
        """The answer as plain data; `{"lost": true}` if the episode is not here and may not be recreated."""
        if ask.what == "reset":
            for play in [play for play in self.live if play[0] != ask.play[0]]:
                del self.live[play]  # drop episodes of an earlier call, which has ended
            return self._reset(ask)
        live = self._at(ask)
        if live is None:
            return {"lost": True}
        if ask.what == "step":
            return asdict(self._step(ask, live, ask.actions[-1]))
        if ask.what == "demonstrate":
            fix_chance(ask.seed, live.taken + 1)
            action = awaited(live.inner.demonstrate())
            return {"action": read_text(action, self._where(live, "demonstrate"), "an action")}
        del self.live[ask.play]
        score = method_of(live.inner, "score", self.name)
        if score is None:
            return {"score": live.earned}
        fix_chance(ask.seed, live.taken + 1)
        found = awaited(score())
        # None means no verdict, never 0
        return {"score": None if found is None else read_number(found, self._where(live, "score"), "the score")}

    def _at(self, ask: Ask) -> _Live | None:
        """The environment before the newest action, or after it if only its score is requested."""
        wanted = len(ask.actions) - (ask.what == "step")
        live = self.live.get(ask.play)
        if live is not None and live.taken == wanted:
            return live
        if not ask.again:
            return None
        self._reset(ask)
        live = self.live[ask.play]
        for action in ask.actions[:wanted]:
            self._step(ask, live, action)
        if digest(live.observed) != ask.texts_digest:
            del self.live[ask.play]
            raise NotRepeated(
                f"`{self.name}` does not repeat: the same row, seed and actions led to other observations"
                " when it was made anew after its worker was ended"
            )
        return live

    def _reset(self, ask: Ask) -> dict[str, Any]:
        fix_chance(ask.seed, 0)
        # copy the row: episodes of a row share one object, and an environment may change it
        row, options = copy.deepcopy((dict(ask.row or {}), dict(self.options)))
        live = self.live[ask.play] = _Live(self.make(**options))
        where = self._where(live, "reset")
        first = read_text(awaited(live.inner.reset(row, ask.seed)), where, "the first observation")
        for name in ("score", "demonstrate"):
            method_of(live.inner, name, self.name)
        live.observed.append(first)
        return {"observation": first}

    def _step(self, ask: Ask, live: _Live, action: str) -> Step:
        fix_chance(ask.seed, live.taken + 1)
        live.taken += 1
        step = read_step(awaited(live.inner.step(action)), self._where(live, "step"))
        live.earned += step.reward
        live.observed.append(step.observation)
        return step

    def _where(self, live: _Live, method: str) -> str:
        place = place_of(getattr(live.inner, method))
        return f"`{method}` of `{self.name}`" + (f" ({place})" if place else "")


def digest(texts: list[str]) -> str:
    """A hash of all the texts that an environment gave, in order."""
    found = hashlib.blake2b(digest_size=8)
    for text in texts:
        found.update(b"%d:" % len(text) + text.encode())
    return found.hexdigest()


def fix_chance(seed: int, turn: int) -> None:
    """Seed the global random generators from row and turn alone: episodes share a process, and must not affect each
    other."""
    random.seed(f"{seed}/{turn}")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed((seed + turn) % 2**32)


def load(config: Mapping[str, Any]) -> tuple[Callable[[Ask], dict[str, Any]], dict[str, Any]]:
    """Import what the recipe names and see that it can be made; the info describes what it has."""
    for folder in reversed([*config["path"], os.getcwd()]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    made = environment_factory_of(config["kind"], config["specs"], config["options"], config["mcp"])
    info = {
        "place": made.place,
        "scores": made.scores,
        "demonstrates": made.demonstrates,
        "tools": [dict(tool) for tool in made.tools],
    }
    return Worker(made.make, made.name, config["options"]).work, info
