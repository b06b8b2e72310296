"""Schemas of rows: nothing of one reaches the network or a file, references are resolved, formats are asserted or refused."""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from referencing.exceptions import Unresolvable

from grpo_verifiers import BadGold, BadOption, build
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


FORMATS = {
    "date": ("2024-02-29", "0000-01-31"), "time": ("10:00:00Z", "23:59:60+00:00", "10:00:00.5-03:30"), "duration": ("P1D", "PT5M2S", "P3W"),
    "date-time": ("2024-02-29T10:00:00Z", "1998-12-31T15:59:60.5-08:00"), "email": ("a.b@c.de", '"a b"@[127.0.0.1]', "a@[IPv6:::1]"),
    "idn-email": ("실례@실례.테스트",), "hostname": ("example.org", "xn--4gbwdl.xn--wgbh1c"), "ipv4": ("127.0.0.1",),
    "ipv6": ("::1", "::ffff:1.2.3.4"), "uri": ("http://a@b.c:80/d?e#f", "urn:a:b", "http://[::1]/"), "uri-reference": ("../a?b", "//c", "#d"),
    "iri": ("http://ƒøø.com/ü",), "iri-reference": ("/ü",), "uri-template": ("/a/{b}{?c,d*}",), "json-pointer": ("", "/a~0/~1b"),
    "uuid": ("2EB8AA08-aa98-11ea-b4aa-73b441d16380",), "relative-json-pointer": ("0#", "2/a"), "regex": ("^\\p{Letter}$", "(?<a>b)\\k<a>"),
}  # fmt: skip
BROKEN = {
    "date": ("2023-02-29", "2024-2-9", "২024-02-02"), "time": ("25:00:00Z", "10:00:00", "22:59:60Z"), "duration": ("one day", "P", "P1D1Y", "PT"),
    "date-time": ("2024-02-29 10:00:00Z", "2024-02-30T10:00:00Z"), "email": ("a", "a..b@c.de", "a@-b"), "idn-email": ("실례",),
    "hostname": ("-a.b", "a_b", "a" * 64, "xn--X"), "ipv4": ("300.1.1.1", "1.2.3", "01.2.3.4"), "ipv6": ("12345::", "::1%eth0"),
    "uri": ("a b", "//c", "http://[a]/", "http://a/%zz"), "uri-reference": ("a b", "\\\\a"), "iri": ("ü",), "iri-reference": ("a b",),
    "uri-template": ("/a/{b",), "json-pointer": ("a", "/~2"), "uuid": ("2eb8aa08-aa98-11ea-b4aa-73b441d1638",),
    "relative-json-pointer": ("/a", "01"), "regex": ("\\Z", "(?P<a>b)", "(", "\\a"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_checked(name: str) -> None:
    work, _ = serve(True)
    schema = {"format": name}
    assert not schema_problem(schema)
    for value in (*FORMATS[name], 5, None):
        assert work((schema, json.dumps(value))) is None, value
    for value in BROKEN[name]:
        assert work((schema, json.dumps(value))) is not None, value
    assert serve(False)[0]((schema, json.dumps(BROKEN[name][0]))) is None


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("^\\p{Letter}+$", "aбc", "a1"),
        ("^\\P{L}+$", "12", "1a"),
        ("^[\\p{Lu}_]+$", "Ä_", "ä"),
        ("^a$", "a", "a\n"),
        ("^\\d$", "5", "٣"),
        ("^\\w$", "a", "é"),
        ("^\\s$", "\ufeff", "a"),
        ("^[^\\s]$", "a", "\u2003"),
        ("^\\S$", "a", "\u2003"),
        ("^\\cJ$", "\n", "J"),
        ("^\\u{1F600}$", "😀", "u"),
        ("^(?<y>a)\\k<y>$", "aa", "ab"),
        ("^[$[]$", "$", "a"),
        ("^[^]$", "\n", ""),
        ("^\\/$", "/", "\\/"),
    ],
)
def test_a_pattern_is_one_of_ecma_262(pattern: str, found: str, missed: str) -> None:
    work, _ = serve(True)
    for schema, wrap in (
        ({"pattern": pattern}, lambda text: text),
        ({"patternProperties": {pattern: {}}, "additionalProperties": False}, lambda text: {text: 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"pattern": pattern}}}, lambda text: text),
    ):
        assert not schema_problem(schema)
        assert work((schema, json.dumps(wrap(found)))) is None
        assert work((schema, json.dumps(wrap(missed)))) is not None
    assert work(({"const": {"pattern": pattern}}, json.dumps({"pattern": pattern}))) is None


@pytest.mark.slow
@pytest.mark.parametrize(("part", "least"), [("required", 0.998), ("optional", 0.94), ("format", 0.985)])
def test_the_suite_of_json_schema_is_judged_as_it_says(part: str, least: float) -> None:
    """Every test of json-schema-org/JSON-Schema-Test-Suite that needs no other document; `GRPO_SUITES` names the folder that holds it."""
    suite = (
        Path(os.environ.get("GRPO_SUITES", Path(__file__).resolve().parents[4] / "shared" / "suites"))
        / "JSON-Schema-Test-Suite"
        / "tests"
    )
    if not suite.exists():
        pytest.skip(f"no {suite}")
    same = count = 0
    for draft, name in {
        **{f"draft{n}": DRAFT.format(n) for n in (3, 4, 6, 7)},
        "draft2019-09": LATEST.replace("2020-12", "2019-09"),
        "draft2020-12": LATEST,
    }.items():
        for file in sorted((suite / draft).rglob("*.json")):
            folders = file.relative_to(suite / draft).parts[:-1]
            if part != (folders[-1] if folders else "required"):
                continue
            work, _ = serve(part == "format")
            for group in json.loads(file.read_text()):
                schema = group["schema"] if isinstance(group["schema"], bool) else {"$schema": name, **group["schema"]}
                problem = schema_problem(schema, part == "format")
                if "another document" in problem or "no draft" in problem:
                    continue
                for test in group["tests"]:
                    count += 1
                    same += not problem and (work((schema, json.dumps(test["data"]))) is None) == test["valid"]
    assert count > 500
    assert same >= least * count
