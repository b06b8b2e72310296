"""Schemas of rows: nothing of one reaches the network or a file, references are resolved, formats are asserted or refused."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from referencing.exceptions import Unresolvable

from grpo_verifiers import BadGold, BadOption, Outcome, build
from grpo_verifiers.kinds.json_reading import schema_problem, serve

LATEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT = "http://json-schema.org/draft-0{}/schema#"


class Asked(BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = b'{"type": "integer"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def server() -> Iterator[str]:
    Asked.paths = []
    with HTTPServer(("127.0.0.1", 0), Asked) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def remote(url: str) -> dict[str, dict[str, Any]]:
    """Schemas that lead out of themselves, each in its own way."""
    x = f"{url}/x"
    return {
        "dynamicRef": {"$schema": LATEST, "$dynamicRef": x},
        "dynamicRef in a property": {"$schema": LATEST, "properties": {"a": {"$dynamicRef": f"{x}#a"}}},
        "ref": {"$ref": x},
        "ref without a scheme": {"$ref": x.removeprefix("http:")},
        "recursiveRef": {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": x},
        "ref relative to the id": {"$id": f"{url}/root", "properties": {"a": {"$ref": "x"}}},
        "ref relative to an inner id": {"items": {"$id": f"{url}/root", "$ref": "x"}},
        "ref of the folder of the id": {"$id": f"{url}/a/root", "not": {"$ref": "../x#/b"}},
        "pointer relative to an inner id": {"$id": f"{url}/root", "if": {"$id": "in", "then": {"$ref": "x#/c"}}},
        "in definitions": {"$defs": {"d": {"$ref": x}}, "items": {"$ref": "#/$defs/d"}},
        "in a place that is no schema": {"odd": {"deep": [{"$ref": x}]}, "$ref": "#/odd/deep/0"},
        "draft 3": {"$schema": DRAFT.format(3), "extends": {"$ref": x}},
        "draft 3, a type": {"$schema": DRAFT.format(3), "type": ["string", {"$ref": x}]},
        "draft 3, a list": {"$schema": DRAFT.format(3), "disallow": [{"extends": [{"$ref": x}]}]},
        "mixed dependencies": {"$schema": DRAFT.format(7), "dependencies": {"a": ["b"], "c": {"$ref": x}}},
        "draft 4": {"$schema": DRAFT.format(4), "id": f"{url}/root", "properties": {"a": {"$ref": "x"}}},
        "draft 6": {"$schema": DRAFT.format(6), "contains": {"$ref": x}},
        "draft 7": {"$schema": DRAFT.format(7), "dependencies": {"a": {"$ref": x}}},
        "an inner dialect": {"properties": {"a": {"$schema": x, "type": "integer"}}},
        "an outer dialect": {"$schema": x},
        "file": {"$ref": "file:///etc/hostname"},
        "data": {"$ref": "data:application/json,{}"},
        "ftp": {"$ref": "ftp://127.0.0.1/x"},
        "urn": {"$ref": "urn:uuid:deadbeef-0000-0000-0000-000000000001"},
        "urn as a base": {"$id": "urn:example:root", "$ref": "urn:example:other#/a"},
        "in an array": {"allOf": [True, {"anyOf": [{"$dynamicRef": x}]}]},
        "pattern": {"patternProperties": {"^a": {"unevaluatedProperties": {"$ref": x}}}},
    }  # fmt: skip


def test_rows_whose_schema_leads_out_are_refused_and_nothing_is_fetched(server: str) -> None:
    verifier = build("json", compare=False, extract="whole")
    schemas = remote(server)
    for schema in schemas.values():
        with pytest.raises(BadGold):
            verifier.compile({"schema": schema})
        with pytest.raises(BadGold):
            verifier.compile({"schema": json.dumps(schema)})
        with pytest.raises(BadOption):
            build("json", json_schema=schema)
    assert schemas and Asked.paths == []


def test_a_schema_that_came_past_the_reading_is_not_fetched_either(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker itself: what it does with schemas that were never read, in this process under a guard."""
    reached: list[object] = []

    def guard(*args: object, **_: object) -> None:
        reached.append(args)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", guard)
    monkeypatch.setattr(socket.socket, "connect_ex", guard)
    monkeypatch.setattr(socket, "getaddrinfo", guard)
    monkeypatch.setattr(urllib.request, "urlopen", guard)
    work, _ = serve(True)
    unresolved = 0
    for name, schema in remote(server).items():
        if "dialect" in name:
            continue  # a dialect is looked up in a table, and never judged by
        for text in ("1", '{"a": 1}', "[1]", '{"a": {"b": [{}]}}'):
            assert schema_problem(schema)
            try:
                work((schema, text))
            except (Unresolvable, RecursionError, AttributeError):  # the last: `extends` of draft 3
                unresolved += 1
    assert reached == [] and Asked.paths == []
    assert unresolved > 40


def test_a_dialect_that_is_not_known_is_no_verdict() -> None:
    row = {"schema": {"$schema": "http://example.com/no-validation", "properties": {"n": {"minimum": 10}}}}
    with pytest.raises(BadGold, match="no draft that is known"):
        build("json", compare=False).compile(row)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": 5},
        {"$schema": ["x"]},
        {"$ref": 5, "$schema": DRAFT.format(4)},
        {"$ref": "http://["},
        {"$ref": "#/const/a", "const": "abc"},
        {"$ref": "#/const", "const": "abc"},
        {"$ref": "#/odd", "odd": {"type": "objekt"}},
        {"$ref": "#no-such-anchor"},
        {"$ref": "#/$defs/a/b", "$defs": {"a": True}},
    ],
)
def test_a_schema_that_cannot_be_followed_is_a_problem_in_words(schema: dict[str, Any]) -> None:
    assert schema_problem(schema).startswith("the schema")


def test_a_schema_nested_too_deep_is_a_problem_in_words() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"not": deep}
    assert "too deep" in schema_problem(deep)


@pytest.mark.parametrize(
    ("name", "package", "good", "bad"),
    [
        ("date-time", "rfc3339_validator", "2024-02-29T10:00:00Z", "2024-02-29 10:00"),
        ("time", "rfc3339_validator", "10:00:00Z", "25:00:00Z"),
        ("duration", "isoduration", "P1D", "one day"),
        ("hostname", "fqdn", "example.org", "-a-.b"),
        ("json-pointer", "jsonpointer", "/a/b", "a/b"),
    ],
)
def test_a_format_is_checked_or_its_row_is_no_verdict(name: str, package: str, good: str, bad: str) -> None:
    """Whether the library's extra packages are there or not, a value that breaks the format is not paid."""
    row = {"schema": {"type": "string", "format": name}}
    verifier = build("json", compare=False, extract="whole")
    if importlib.util.find_spec(package) is None:
        with pytest.raises(BadGold, match="assert_format: false"):
            verifier.compile(row)
        verifier = build("json", compare=False, extract="whole", assert_format=False)
        assert verifier.verify(json.dumps(bad), row).outcome is Outcome.RIGHT
    else:
        outcomes = [verifier.verify(json.dumps(text), row).outcome for text in (good, bad)]
        assert outcomes == [Outcome.RIGHT, Outcome.WRONG]
    verifier.close()
