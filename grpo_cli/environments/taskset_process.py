"""Inside the Python that has `verifiers` 0.4: lists the tasks of a taskset, and plays each episode in a forked process.

How this works. The host starts one process with the interpreter that the recipe names. It imports the taskset once and then only waits.
`rows` lists tasks; `play` forks a process that runs one episode of their `Env.run_episode`, whose model is the endpoint of that episode,
and leaves its result in a file. So an episode costs no import, shares no chance and no loop with another, and can be killed. Nothing
else of this package is needed here, and the package `verifiers` is imported nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo_cli.environments.tools.mcp import ToolServer, tool_text
from grpo_verifiers.processes import wire
from grpo_verifiers.processes.worker import die_with

LOOP = "grpo_loop"
"""The id of our harness: the loop of their `null` in this process, which asks the same endpoint without a program a turn."""
REAP_S = 0.02


class NotPlayable(Exception):
    """A taskset that cannot be played here; the message gives the reason."""


def boot() -> None:
    """Entry: `python -c … PLACES FD PARENT`."""
    die_with(int(sys.argv[3]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    control = socket.socket(fileno=int(sys.argv[2]))
    opening = wire.receive(control)
    if opening is None:
        return
    said = json.loads(opening)
    sys.path[:0] = said["path"]
    try:
        tasks = Tasks(said["id"], said["options"], said["max_turns"])
        ready = {"infinite": tasks.env.taskset.INFINITE, "version": version("verifiers")}
    except BaseException as err:  # noqa: BLE001 - whatever the taskset raises as it is imported is for its user
        where = "" if isinstance(err, NotPlayable) else f"{type(err).__name__}: "
        _reply(control, 0, failed=f"{where}{err}"[:1500])
        return
    _reply(control, 0, ready=ready)
    _serve(control, tasks)


def _serve(control: socket.socket, tasks: Tasks) -> None:
    """Answers the host until it hangs up, then ends every episode."""
    live: dict[int, Path] = {}
    while True:
        ready = select.select([control], [], [], REAP_S if live else None)[0]
        for pid in list(live):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                place = live.pop(pid)
                with contextlib.suppress(OSError):  # the host may have removed the folder
                    (place / "code.new").write_text(str(os.waitstatus_to_exitcode(status)))
                    (place / "code.new").rename(place / "code")
        if not ready:
            continue
        message = wire.receive(control)
        if message is None:
            for pid in live:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            os._exit(0)
        asked = json.loads(message)
        try:
            if asked["op"] == "rows":
                _reply(control, asked["id"], rows=list(tasks.rows(asked["most"])))
                continue
            task = tasks.at(asked["number"], asked["key"])
        except Exception as err:  # noqa: BLE001 - it belongs to the host
            _reply(control, asked["id"], failed=f"{'' if isinstance(err, NotPlayable) else type(err).__name__}: {err}")
            continue
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            control.close()
            _play(tasks, task, asked, parent)
        live[pid] = Path(asked["root"])
        _reply(control, asked["id"], pid=pid)


def _reply(control: socket.socket, number: int, **answer: object) -> None:
    wire.send(control, json.dumps({"id": number, **answer}).encode())


class Tasks:
    """The environment of a taskset, and those of its tasks that were asked for."""

    def __init__(self, spec: str, options: Mapping[str, Any], max_turns: int) -> None:
        """
        Raises:
            NotPlayable: no such version, a harness that needs a container, or more than one seat for the policy.
        """
        try:
            found = version("verifiers")
        except PackageNotFoundError:
            raise NotPlayable(f"`{sys.executable}` has no package `verifiers`: pip install 'verifiers>=0.4'") from None
        if tuple(int(part) for part in found.split(".")[:2]) < (0, 4):
            raise NotPlayable(
                f"`{sys.executable}` has `verifiers` {found}, and tasksets are of 0.4: leave `environment.interpreter` out to play"
                " its environments, or install the newer one"
            )
        import verifiers.v1 as vf
        from verifiers.v1.configs.env import EnvConfig
        from verifiers.v1.utils import loaders
        from verifiers.v1.utils.generic import concrete_type

        sys.modules[LOOP] = _loop_module(vf)
        kind = loaders.environment_class(spec, str(options.get("id", "")))
        config = concrete_type(kind, EnvConfig, origin=vf.Env) or EnvConfig
        raw: dict[str, Any] = {**options, "taskset": {**options.get("taskset", {}), "id": spec}}
        raw.setdefault("interception", {"type": "server"})
        bundled = loaders.default_harness_id(spec)
        seats = [name for name, one in config.model_fields.items() if isinstance(one.default, vf.AgentConfig)]
        for name in seats:
            own, given = config.model_fields[name].default.harness, dict(raw.get(name) or {})
            pinned = own.id if own is not None and own.id != "null" else bundled if bundled != "bash" else LOOP
            given.setdefault("harness", {"id": pinned})
            raw[name] = {"runtime": {"type": "subprocess"}, "max_turns": max_turns, **given}
        self.env = kind(config.model_validate(raw))
        configs = {name: getattr(self.env.config, name) for name in seats}
        playing = [name for name, one in configs.items() if one.client is None]
        if len(playing) != 1:
            raise NotPlayable(
                f"`{spec}` has the seats {', '.join(seats)}, and one is played by the policy: give the others an endpoint, such as"
                f" `options: {{{seats[-1]}: {{model: NAME, client: {{base_url: URL}}}}}}`"
            )
        for name, one in configs.items():
            if loaders.harness_class(one.harness.id).NEEDS_CONTAINER and one.runtime.type == "subprocess":
                raise NotPlayable(f"the harness `{one.harness.id}` of the seat `{name}` needs a container")
        for judge in getattr(self.env.config.taskset.task, "judges", ()):
            if "pinference" in judge.base_url:
                raise NotPlayable(f"the judge `{judge.id}` asks a paid service: give it a `base_url` in `options`")
        self._tasks, self._more = list[Any](), iter(self.env.taskset)

    def at(self, number: int, key: str) -> Any:
        """The task of a row.

        Raises:
            NotPlayable: the taskset has another one there now.
        """
        self._read(number + 1)
        task = self._tasks[number] if number < len(self._tasks) else None
        if task is None or task.key != key:
            raise NotPlayable(f"task {number} is another one than when the rows were listed")
        return task

    def rows(self, most: int | None) -> Iterator[dict[str, Any]]:
        """The tasks as rows: their own columns, their prompt as text, and what finds them again.

        Raises:
            NotPlayable: a task needs a container, or shows an image.
        """
        self._read(most)
        for number, task in enumerate(self._tasks[:most]):
            data = task.data.model_dump(mode="json", exclude_none=True)
            if data.get("image") is not None:
                raise NotPlayable(
                    f"task {number} runs in the image `{data['image']}`, and no container is started here"
                )
            prompt = data.get("prompt", "")
            if not isinstance(prompt, str):
                said = [message.get("content") or "" for message in prompt]
                if any(part.get("type") != "text" for one in said if isinstance(one, list) for part in one):
                    raise NotPlayable(f"task {number} shows an image, and only text is played")
                texts = [one if isinstance(one, str) else "\n".join(part["text"] for part in one) for one in said]
                prompt = "\n".join(texts)
            shown = prompt or str(data.get("name") or f"task {number}")
            yield {**data, "prompt": shown, "task_number": number, "task_key": task.key}

    def _read(self, most: int | None) -> None:
        while most is None or len(self._tasks) < most:
            try:
                self._tasks.append(next(self._more))
            except StopIteration:
                return


def _play(tasks: Tasks, task: object, asked: Mapping[str, Any], parent: int) -> None:
    """The forked process of one episode; never returns."""
    code, root = 1, Path(asked["root"])
    try:
        os.setsid()
        die_with(parent)
        os.chdir(root / "folder")
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(root / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
        os.environ.update(asked["variables"])
        random.seed(asked["seed"])
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(random.getrandbits(32))
        found = asyncio.run(_episode(tasks, task))
        (root / "result.json").write_text(json.dumps(found))
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


async def _episode(tasks: Tasks, task: object) -> dict[str, Any]:
    """What an episode was worth, how it ended, and the error that leaves it without a verdict."""
    import verifiers.v1 as vf
    from verifiers.v1.clients import EvalClientConfig, ModelContext

    url = os.environ["OPENAI_BASE_URL"]
    async with tasks.env.serving():
        client = EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY")
        episode: vf.Episode = await tasks.env.run_episode(task, ModelContext(model="policy", client=client))
    own = [trace for trace in episode.traces if trace.agent.config.client.base_url == url]
    error = next((one for one in (episode.last_error, *(trace.last_error for trace in episode.traces)) if one), None)
    if error is not None or not episode.ok:
        text = " ".join(f"{error.type}: {error.message}".split()) if error else "the episode did not come to its end"
        return {"reason": error.type if error else "not_ok", "error": text[:300]}
    if len(own) != 1:
        return {"reason": "several_traces", "error": f"the policy played {len(own)} times in one episode"}
    (trace,) = own
    if not trace.rewards:
        return {"reason": "no_score", "error": "the task has no reward"}
    metrics = {**trace.rewards, **trace.metrics}
    return {"reward": float(trace.reward), "stop": trace.stop_condition, "metrics": _plain(metrics)}


def _plain(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def _loop_module(vf: ModuleType) -> ModuleType:
    """A module with our harness, as their loader wants it."""
    import httpx
    from verifiers.v1.configs.harness import HarnessConfig
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.runtimes import ProgramResult

    class Loop(vf.Harness[HarnessConfig]):  # type: ignore[name-defined, misc]
        """Asks for turns and calls the task's tools until a turn calls none."""

        APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(
            self,
            ctx: object,
            trace: object,
            runtime: object,
            endpoint: str,
            secret: str,
            mcp_urls: Mapping[str, str],
            data: object,
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            messages = [{"role": "system", "content": system}] if system else []
            if isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages += [message_to_wire(message) for message in prompt or ()]
            servers = {name: ToolServer.at(url) for name, url in mcp_urls.items()}
            # in threads: a server asks this process for the state of its episode
            listed = {name: await asyncio.to_thread(server.tools) for name, server in servers.items()}
            tools = {
                f"{name}_{one['name']}" if name else one["name"]: (name, one) for name in listed for one in listed[name]
            }
            body: dict[str, Any] = {"model": "policy", "messages": messages}
            if tools:
                body["tools"] = [
                    {
                        "type": "function",
                        "function": {
                            "name": name,
                            "description": one.get("description") or "",
                            "parameters": one["inputSchema"],
                        },
                    }
                    for name, (_, one) in tools.items()
                ]
            async with httpx.AsyncClient(timeout=None) as client:
                while True:
                    reply = await client.post(
                        f"{endpoint}/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
                    )
                    if (
                        reply.status_code != 200
                    ):  # a stop or a limit, which the trace holds, or an error of the model's side
                        return ProgramResult(exit_code=1, stdout="", stderr=reply.text[:2000])
                    said = reply.json()["choices"][0]["message"]
                    messages.append({key: value for key, value in said.items() if value is not None})
                    if not said.get("tool_calls"):
                        return ProgramResult(exit_code=0, stdout="", stderr="")
                    for call in said["tool_calls"]:
                        text = await asyncio.to_thread(_called, servers, tools, call["function"])
                        messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    module = ModuleType(LOOP)
    Loop.__module__ = LOOP
    vars(module).update(Loop=Loop, __all__=["Loop"])
    return module


def _called(servers: Mapping[str, ToolServer], tools: Mapping[str, tuple[str, Any]], call: Mapping[str, Any]) -> str:
    """A tool's result as text; what the model got wrong is an answer too.

    Raises:
        ToolServerFailed: the server did not answer.
    """
    name, given = call["name"], call.get("arguments") or "{}"
    if name not in tools:
        return f"error: unknown tool `{name}`"
    try:
        arguments = json.loads(given)
    except ValueError as err:
        return f"error: the arguments are no JSON: {err}"
    if not isinstance(arguments, dict):
        return "error: the arguments are no JSON object"
    server, one = tools[name]
    is_error, text = tool_text(servers[server].call(one["name"], arguments))
    return f"error: {text}" if is_error else text
