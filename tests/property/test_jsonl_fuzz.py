"""Mutated JSONL: `grpo verify` and a recipe's rows take it or refuse it with a place. `JSONL_FUZZ` sets the tries."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_cli.app import main
from grpo_cli.data.audit import audit_golds
from grpo_cli.data.rows import load_rows
from grpo_cli.errors import UserError
from grpo_cli.recipe.sections.inputs import Data
from grpo_verifiers import build

TRIES = int(os.environ.get("JSONL_FUZZ", "100"))
fuzz = settings(max_examples=TRIES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ODD: list[Any] = [
    *(None, True, -1, 0, 1.5, 1e308, 10**30, float("nan"), float("inf"), "", "x", "\x00", "\ud800", "\u2028"),
    *([], {}, [[]], [None], {"role": "user"}, [{"role": "user", "content": None}], {"": {}}, "\\boxed{", "{x}"),
]
PIECES = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r\n", b"\n\n", b"\x00", b"\xff", b"\xef\xbb\xbf"),
    *(b"\\ud800", b"NaN", b"1e999", b"null", b"\x1f\x8b", b"[" * 3000, b'{"a":' * 2000, b"9" * 5000),
]
LINES: list[dict[str, Any]] = [
    {"completion": "It is \\boxed{4}", "answer": "4"},
    {"completion": "The answer is 5.", "answer": 5, "prompt": "2 + 3?", "id": "a"},
    {"completion": [{"role": "assistant", "content": "\\boxed{\\frac{1}{2}}"}], "answer": "0.5"},
    {"question": "2 + 2?", "answer": "4", "id": "q1", "messages": [{"role": "user", "content": "2 + 2?"}]},
    {"question": "Löse x² = 4", "answer": "x = \\pm 2", "group": "g", "extra": {"deep": [1, 2, {"x": None}]}},
]
KINDS = (["--math"], ["--regex", r"is (?P<answer>\d+)", "--option", "match=answer_group"], ["--math", "--json"])


def mutated(rng: random.Random) -> bytes:
    """A few lines with wrong values in them, then with wrong bytes."""
    made = []
    for _ in range(rng.randint(0, 4)):
        line = dict(rng.choice(LINES))
        for _ in range(rng.randint(0, 2)):
            spoil(line, rng)
        made.append(json.dumps(line, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass"))
    data = b"\n".join(made) + rng.choice([b"\n", b""])
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([0, 0, 1, 9, 60]))
        data = data[:at] + rng.choice([b"", *PIECES]) + data[end:]
    return data


def spoil(line: dict[str, Any], rng: random.Random) -> None:
    key = rng.choice([*line, "answer", "completion", "id", "verdicts", "reward", "step", ""])
    if rng.random() < 0.3:
        line.pop(key, None)
    else:
        line[key] = rng.choice(ODD)


def told(argv: list[str], stdin: bytes) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `grpo ARGV` in this process; a traceback raises here."""
    streams = {"stdin": io.BytesIO(stdin), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
    with contextlib.ExitStack() as stack:
        for name, stream in streams.items():
            errors = "backslashreplace" if name == "stderr" else "strict"  # as Python sets its own
            text = io.TextIOWrapper(stream, encoding="utf-8", errors=errors, write_through=True)
            stack.callback(text.detach)
            stack.enter_context(mock.patch.object(sys, name, text))
        stack.enter_context(mock.patch.object(sys, "argv", ["grpo", *argv]))
        with pytest.raises(SystemExit) as end:
            main()
        out, err = (streams[name].getvalue().decode() for name in ("stdout", "stderr"))
    return int(end.value.code or 0), out, err


@fuzz
@given(st.integers(0, 2**32))
def test_verify_scores_or_refuses_any_lines(seed: int) -> None:
    rng = random.Random(seed)
    data = mutated(rng)
    code, out, err = told(["verify", "-", *rng.choice(KINDS)], data)
    assert code in (0, 1, 2, 3), err
    assert "Traceback" not in err
    assert code == 0 or err
    for line in filter(None, out.split("\n")):  # not `splitlines`: U+2028 inside a string is no end of line
        json.loads(line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jsonl")


@fuzz
@given(st.integers(0, 2**32))
def test_rows_are_loaded_and_audited_or_refused(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    file = folder / "rows.jsonl"
    file.write_bytes(mutated(rng))
    data = Data.model_validate(
        {
            "train": [{"from": str(file)}],
            "prompt": rng.choice(["{{question}}", "{{completion}}", "{{question}} {{extra.deep}}"]),
            "answer": "{{answer}}",
        }
    )
    try:
        rows = load_rows(data, "train")
        assert rows
        assert all(isinstance(row.prompt, str) and isinstance(row.id, str) for row in rows)
        audit_golds(rows, {"math": build("math")}, rng.choice(["error", "drop"]))
    except UserError as err:
        assert all(mistake.message for mistake in err.mistakes)
        err.render().encode("utf-8", "surrogatepass")
