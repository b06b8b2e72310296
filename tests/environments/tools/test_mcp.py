"""Tools of MCP servers in worlds: what the model gets wrong is an answer, and what the server gets wrong is no verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.environments.pool import Fault, World, Worlds
from grpo_cli.environments.step import Step
from grpo_cli.environments.tools.mcp import ToolServer, tool_text
from grpo_cli.environments.tools.world import BadCall, ToolServerFailed, checked
from grpo_cli.errors import RecipeError

SERVER = str(Path(__file__).with_name("mcp_server.py"))
STDIO = {"command": [sys.executable, SERVER], "url": "", "header_env": {}, "env": [], "folder": None}


def worlds_of(servers: dict[str, Any], allow: tuple[str, ...] = (), scope: str = "run", **more: Any) -> Worlds:
    mcp = {"servers": servers, "allow": list(allow), "scope": scope, "step_s": 3.0}
    worlds = Worlds((), {}, kind="tools", workers=1, mcp=mcp, **more)
    worlds.start()
    return worlds


def said(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "is_text": False, "error": ""}


def call(worlds: Worlds, world: World, *calls: dict[str, Any]) -> Step | Fault:
    (found,) = worlds.step([(world, json.dumps(list(calls)))])
    return found


@pytest.fixture
def worlds() -> Iterator[Worlds]:
    made = worlds_of({"s": STDIO})
    yield made
    made.close()


def test_a_process_is_asked_and_its_mistakes_and_the_models_are_told_apart(worlds: Worlds) -> None:
    assert [tool["function"]["name"] for tool in worlds.tools][:3] == ["s_add", "s_count", "s_hang"]
    ((world, _),) = worlds.open([({}, 0)])
    step = call(worlds, world, said("s_add", a=1, b=2), said("s_chatter", word="x"))
    assert isinstance(step, Step) and step.valid and step.parts == ('{"sum": 3}', "ok\n[image]")
    for one, text in (
        (said("s_add", a=100, b=2), "error: a is above 99"),
        (said("s_add", a="1", b=2), "error: `a` must be an integer"),
        (said("s_add", a=1), "error: `s_add` needs the argument `b`"),
        (said("s_fails"), "error: ok"),
        (said("s_no"), "error: there is no tool `s_no`"),
    ):
        step = call(worlds, world, one)
        assert isinstance(step, Step) and step.observation.startswith(text) and not step.valid
    long = call(worlds, world, said("s_long"))
    assert isinstance(long, Step) and len(long.observation) < 8300 and "characters more" in long.observation


@pytest.mark.parametrize("name", ["hang", "die"])
def test_a_server_that_hangs_or_dies_is_no_verdict_and_the_next_call_gets_another(worlds: Worlds, name: str) -> None:
    (one, _), (other, _) = worlds.open([({}, 0), ({}, 0)])
    found = call(worlds, one, said(f"s_{name}"))
    assert isinstance(found, Fault) and found.reason == "tool_server" and not found.provoked
    after = call(worlds, other, said("s_add", a=1, b=2))
    assert isinstance(after, Step) and after.observation == '{"sum": 3}'


@pytest.mark.parametrize(("scope", "counts"), [("run", ["1", "2"]), ("episode", ["1", "1"])])
def test_a_server_lives_as_long_as_its_scope(scope: str, counts: list[str]) -> None:
    worlds = worlds_of({"s": STDIO}, ("s.count",), scope)
    try:
        assert [tool["function"]["name"] for tool in worlds.tools] == ["s_count"]
        episodes = worlds.open([({}, 0), ({}, 0)])
        steps = [call(worlds, world, said("s_count")) for world, _ in episodes]
        assert [step.observation for step in steps if isinstance(step, Step)] == counts
    finally:
        worlds.close()


def test_a_server_sees_the_variables_that_are_named_and_their_values_are_masked(monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOWN_TOKEN", "quite-secret")
    monkeypatch.setenv("HIDDEN_TOKEN", "other-secret")
    worlds = worlds_of({"s": STDIO | {"env": ["SHOWN_TOKEN"]}}, env=["SHOWN_TOKEN"])
    try:
        ((world, _),) = worlds.open([({}, 0)])
        step = call(worlds, world, said("s_seen"))
        assert isinstance(step, Step)
        seen = json.loads(step.parts[0].partition("\n")[0])
        assert seen["SHOWN_TOKEN"] == "***" and seen["HIDDEN_TOKEN"] == "" and "grpo-server-" in seen["HOME"]
    finally:
        worlds.close()


@pytest.mark.parametrize("more", [[], ["--sse"]])
def test_an_address_is_asked_with_its_header_and_session(more: list[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "Bearer sesame")
    with subprocess.Popen([sys.executable, SERVER, "--http", *more], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
            spec = {
                "command": [],
                "url": url,
                "header_env": {"Authorization": "NOTES_TOKEN"},
                "env": [],
                "folder": None,
            }
            worlds = worlds_of({"n": spec}, env=["NOTES_TOKEN"])
            try:
                ((world, _),) = worlds.open([({}, 0)])
                step = call(worlds, world, said("n_add", a=1, b=2))
                assert isinstance(step, Step) and step.observation == '{"sum": 3}'
                server.kill()
                server.wait()
                gone = call(worlds, world, said("n_add", a=1, b=2))
                assert isinstance(gone, Fault) and gone.reason == "tool_server" and "sesame" not in gone.text
            finally:
                worlds.close()
            with pytest.raises(RecipeError, match="did not answer"):
                worlds_of({"n": spec}, env=["NOTES_TOKEN"])
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("servers", "allow", "why"),
    [
        ({"s": STDIO | {"command": ["no-such-program"]}}, (), "cannot be started"),
        ({"s": STDIO | {"command": [sys.executable, "-c", "print('no')"]}}, (), "has ended"),
        ({"s": STDIO | {"env": ["NOT_SET_ANYWHERE"]}}, (), "`NOT_SET_ANYWHERE` is not set"),
        ({"s": STDIO}, ("s.ad",), r"`allow` names `s\.ad`.*did you mean `s\.add`"),
        ({"s" * 63: STDIO}, (), "is no name of at most 64"),
    ],
)
def test_what_cannot_serve_is_refused_with_the_reason(servers: Any, allow: tuple[str, ...], why: str) -> None:
    with pytest.raises(RecipeError, match=why):
        worlds_of(servers, allow)


def test_a_server_that_offers_other_tools_later_is_no_verdict(tmp_path: Path) -> None:
    # the second process of this server has one tool more
    code = (
        Path(SERVER)
        .read_text()
        .replace(
            "COUNT = [0]",
            f"MARK = {str(tmp_path / 'begun')!r}\nif os.path.exists(MARK): TOOLS['new'] = WORD\nopen(MARK, 'w')\nCOUNT = [0]",
        )
    )
    (tmp_path / "server.py").write_text(code)
    worlds = worlds_of({"s": STDIO | {"command": [sys.executable, str(tmp_path / "server.py")]}})
    try:
        ((world, _),) = worlds.open([({}, 0)])
        found = call(worlds, world, said("s_count"))
        assert isinstance(found, Fault) and found.reason == "tool_server" and "other tools" in found.text
    finally:
        worlds.close()


def test_a_schema_that_is_not_judged_here_is_left_to_the_server() -> None:
    kinds = {"a": {"$ref": "#/$defs/n"}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "c": {}}
    schema = {"function": {"name": "f", "parameters": {"type": "object", "properties": kinds}}}
    assert checked(schema, {"a": "7", "b": "7", "c": "7"}, is_text=True) == {"a": 7, "b": 7, "c": "7"}
    assert checked(schema, {"a": [1], "b": None, "c": {"x": 1}}, is_text=False) == {"a": [1], "b": None, "c": {"x": 1}}
    with pytest.raises(BadCall, match="`b` must be an integer or null"):
        checked(schema, {"b": "x"}, is_text=False)
    bare = {"function": {"name": "f", "parameters": {"type": "object"}}}
    with pytest.raises(BadCall, match="has no argument `z`"):
        checked(bare, {"z": 1}, is_text=False)


def test_a_refusal_of_a_call_is_a_result_and_a_broken_answer_is_none() -> None:
    server = ToolServer([sys.executable, SERVER], timeout_s=5)
    try:
        assert tool_text(server.call("no_such", {})) == (True, "unknown tool no_such")
    finally:
        server.close()
    broken = ToolServer(
        [sys.executable, "-c", "import sys\nfor line in sys.stdin: print('[]', flush=True)"], timeout_s=0.5
    )
    with pytest.raises(ToolServerFailed, match="did not answer within"):
        broken.tools()
