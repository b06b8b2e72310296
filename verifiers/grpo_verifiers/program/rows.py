"""Rows as data sets store them, brought to the columns of `code`: HumanEval, MBPP, APPS, LiveCodeBench, our own cases.

A data set's own file is read as it is; a row that has `tests` is taken at its word.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from grpo_verifiers.verifier import BadGold

FIELDS = ("tests", "style", "entry_point", "prompt_code", "setup", "scoring", "timeout", "mem_mb", "needs")
# what LeetCode gives every solution; LiveCodeBench and APPS solutions count on it
LEETCODE_SETUP = """from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
import bisect, collections, copy, datetime, functools, heapq, itertools, math, operator, random, re, string, sys
from math import inf, gcd, sqrt, ceil, floor, log, log2, comb, perm
"""


def code_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """The verifier's inputs of one line of a file of code samples, whatever data set it follows.

    Raises:
        BadGold: the line is of a known data set but its tests cannot be read.
    """
    row = mapped(line)
    return {name: row[name] for name in FIELDS if row.get(name) is not None}


def layout(row: Mapping[str, Any]) -> str:
    """Which data set's columns a row has: humaneval, mbpp, apps, livecodebench, code, answer (tests under that name), unknown."""
    has = row.keys()
    if {"test", "entry_point"} <= has and ("prompt" in has or "declaration" in has):
        return "humaneval"
    if "test_list" in has:
        return "mbpp"
    if "public_test_cases" in has or "private_test_cases" in has:
        return "livecodebench"
    if "input_output" in has:
        return "apps"
    if "tests" in has:
        return "code"
    if isinstance(row.get("answer"), list) or (
        isinstance(row.get("answer"), str) and "assert" in row["answer"]
    ):
        return "answer"
    return "unknown"


def mapped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the columns of `code` beside its own."""
    makers = {"humaneval": _humaneval, "mbpp": _mbpp, "apps": _apps, "livecodebench": _livecodebench}
    kind = layout(row)
    if kind == "answer":
        return {**row, "tests": row["answer"]}
    if kind not in makers:
        return dict(row)
    try:
        return {**row, **makers[kind](row)}
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        zlib.error,
        pickle.UnpicklingError,
    ) as err:
        raise BadGold(
            f"looks like a row of {kind}, but its tests cannot be read: {type(err).__name__}: {err}"
        ) from err


def _humaneval(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt = row.get("prompt") or row.get("declaration") or ""
    out = {"style": "assert", "tests": row["test"], "prompt_code": prompt, "entry_point": row["entry_point"]}
    if isinstance(row.get("canonical_solution"), str):
        out["solution"] = prompt + row["canonical_solution"]
    return out


def _mbpp(row: Mapping[str, Any]) -> dict[str, Any]:
    tests = [str(t) for t in row["test_list"]]
    imports = row.get("test_imports")
    setup = "\n".join(
        [*(imports if imports is not None else ()), str(row.get("test_setup_code") or "")]
    ).strip()
    out: dict[str, Any] = {"style": "assert", "tests": tests, "setup": setup}
    if row.get("entry_point"):
        out["entry_point"] = row["entry_point"]
    if isinstance(row.get("code"), str):
        out["solution"] = row["code"].replace("\r\n", "\n")
    return out


def _apps(row: Mapping[str, Any]) -> dict[str, Any]:
    cases = row["input_output"]
    cases = json.loads(cases) if isinstance(cases, str) else cases
    name = cases.get("fn_name") or None
    pairs = list(zip(cases["inputs"], cases["outputs"], strict=True))
    if name:
        # APPS wraps most expected values in a list of one
        tests: list[dict[str, Any]] = [
            {
                "args": given,
                "expected_any": [wanted, *(wanted if isinstance(wanted, list) and len(wanted) == 1 else [])],
            }
            for given, wanted in pairs
        ]
        out: dict[str, Any] = {
            "style": "function_call",
            "tests": tests,
            "entry_point": name,
            "setup": LEETCODE_SETUP,
        }
    else:
        out = {"style": "stdio", "tests": [{"input": _text(i), "output": _text(o)} for i, o in pairs]}
    solutions = row.get("solutions")
    solutions = (
        json.loads(solutions) if isinstance(solutions, str) and solutions.startswith("[") else solutions
    )
    if isinstance(solutions, list) and solutions:
        out["solution"] = solutions[0]
    return out


def _text(value: object) -> str:
    return "\n".join(map(str, value)) + "\n" if isinstance(value, list) else str(value)


def _livecodebench(row: Mapping[str, Any]) -> dict[str, Any]:
    cases = [*_lcb_cases(row.get("public_test_cases")), *_lcb_cases(row.get("private_test_cases"))]
    about = row.get("metadata") or "{}"
    name = (json.loads(about) if isinstance(about, str) else about).get("func_name")
    if name:
        tests: list[dict[str, Any]] = [
            {
                "args": [json.loads(line) for line in c["input"].split("\n") if line.strip()],
                "expected": json.loads(c["output"]),
            }
            for c in cases
        ]
        return {"style": "function_call", "tests": tests, "entry_point": name, "setup": LEETCODE_SETUP}
    return {"style": "stdio", "tests": [{"input": c["input"], "output": c["output"]} for c in cases]}


def _lcb_cases(text: Any) -> list[dict[str, Any]]:
    if not text:
        return []
    if not isinstance(text, str):
        return list(text)
    try:
        found = json.loads(text)
    except ValueError:
        packed = zlib.decompress(base64.b64decode(text))
        found = json.loads(_OnlyText(io.BytesIO(packed)).load())
    return list(found)


class _OnlyText(pickle.Unpickler):
    """LiveCodeBench pickles a JSON text; anything that names a class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a file of tests")
