"""Rows as data sets store them, brought to the columns of `code`: HumanEval, MBPP, EvalPlus, APPS, TACO, LiveCodeBench and others.

A data set's own file is read as it is; a row that has `tests` is taken at its word.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_verifiers.strict_json import RepeatedKey, loads
from grpo_verifiers.verifier import BadGold

CLOSE = 1e-6  # what the checkers of APPS, TACO and CodeContests let decimals differ by, or less
PYTHON3 = 3  # the language of a solution, in CodeContests
CALLS = ("functional", "function_call")
STREAMS = ("stdin", "stdin_stdout")
"""How the cases of LiveCodeBench, DeepCoder and PrimeIntellect are marked."""
NONE: dict[str, list[str]] = {"input": [], "output": []}
FIELDS = ("tests", "style", "entry_point", "prompt_code", "setup", "scoring", "timeout", "mem_mb", "needs", "compare")
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
    """Which data set's columns a row has; `code`: our own, `answer`: tests under that name, `unknown`."""
    has = row.keys()
    if "tests" in has and "test_list" not in has:
        return "code"
    for name, (columns, _) in LAYOUTS.items():
        if columns <= has and (name != "verl" or _ground_truth(row) is not None):
            return name
    if isinstance(row.get("answer"), list) or (isinstance(row.get("answer"), str) and "assert" in row["answer"]):
        return "answer"
    return "unknown"


def mapped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the columns of `code` beside its own, from any layout of public sets that is known.

    Raises:
        BadGold: no column holds tests, or they cannot be read; with the layout that the row looks like.
    """
    kind = layout(row)
    if kind == "answer":
        row, kind = {**row, "tests": row["answer"]}, "code"
    if kind == "unknown":
        raise BadGold(
            "no column holds the tests: `tests`, `test_list` or `answer`; or name it in `data.columns`. There are: "
            + ", ".join(sorted(map(str, row)))[:300]
        )
    try:
        return {**row, **(_marked if kind == "code" else LAYOUTS[kind][1])(row)}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, zlib.error, pickle.UnpicklingError) as err:
        what = "`tests`" if kind == "code" else f"looks like a row of {kind}, but its tests"
        raise BadGold(f"{what} cannot be read: {type(err).__name__}: {err}") from err


def _humaneval(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt = row.get("prompt") or row.get("declaration") or ""
    out = {"style": "assert", "tests": row["test"], "prompt_code": prompt, "entry_point": row["entry_point"]}
    if isinstance(row.get("canonical_solution"), str):
        out["solution"] = prompt + row["canonical_solution"]
    return out


def _mbpp(row: Mapping[str, Any]) -> dict[str, Any]:
    tests = [str(t) for t in row["test_list"]]
    if isinstance(row.get("test"), str) and row["test"].strip():
        tests.append(row["test"])  # EvalPlus's further tests
    imports = row.get("test_imports")
    setup = "\n".join([*(imports if imports is not None else ()), str(row.get("test_setup_code") or "")]).strip()
    out: dict[str, Any] = {"style": "assert", "tests": tests, "setup": setup}
    if row.get("entry_point"):
        out["entry_point"] = row["entry_point"]
    elif isinstance(row.get("code"), str):
        name = _defined_and_called(row["code"], tests)
        out |= {"entry_point": name} if name else {}
    if isinstance(row.get("code"), str):
        out["solution"] = row["code"].replace("\r\n", "\n")
    return out


def _apps(row: Mapping[str, Any]) -> dict[str, Any]:
    cases = row["input_output"]
    cases = loads(cases) if isinstance(cases, str) else cases
    name = cases.get("fn_name") or None
    pairs = list(zip(cases["inputs"], cases["outputs"], strict=True))
    if name:
        tests = [_call(given, wanted) for given, wanted in pairs]
        out: dict[str, Any] = {"style": "function_call", "tests": tests, "entry_point": name, "setup": LEETCODE_SETUP}
    else:
        tests = [{"input": _text(i), "output": _text(o), "float_tol": CLOSE} for i, o in pairs]
        out = {"style": "stdio", "tests": tests, "compare": "tokens"}
    return out | _solution(row)


def _solution(row: Mapping[str, Any]) -> dict[str, Any]:
    """The first of a row's `solutions`."""
    found = _parsed(row.get("solutions"))
    return {"solution": found[0]} if isinstance(found, list) and found else {}


def _defined_and_called(code: str, tests: list[str]) -> str | None:
    """The function of the reference that the tests call, whatever else of that name there is."""
    try:
        defined = {n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        calls = [n for t in tests for n in ast.walk(ast.parse(t)) if isinstance(n, ast.Call)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [n.func.id for n in calls if isinstance(n.func, ast.Name)]
    return next((n for n in names if n in defined), None)


def _codecontests(row: Mapping[str, Any]) -> dict[str, Any]:
    tests = [
        {"input": i, "output": o, "float_tol": CLOSE}
        for part in ("public_tests", "private_tests", "generated_tests")
        for i, o in zip((row.get(part) or NONE)["input"], (row.get(part) or NONE)["output"], strict=True)
    ]
    out: dict[str, Any] = {"style": "stdio", "tests": tests, "compare": "tokens"}
    solutions = row.get("solutions") or {}
    found = zip(solutions.get("language", ()), solutions.get("solution", ()), strict=False)
    python = next((text for language, text in found if language == PYTHON3), None)
    return {**out, "solution": python} if python else out


def _acecode(row: Mapping[str, Any]) -> dict[str, Any]:
    cases = row["test_cases"]
    return {"style": "assert", "tests": loads(cases) if isinstance(cases, str) else list(cases)}


def _ground_truth(row: Mapping[str, Any]) -> Any:
    """The tests in a row of verl's form, None for rows of other tasks in that form."""
    model = row.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, Mapping) else None
    try:
        found = loads(truth) if isinstance(truth, str) else truth
    except RepeatedKey as err:
        raise BadGold(f"`reward_model.ground_truth`: {err}") from None
    except ValueError:
        return None
    return found if isinstance(found, Mapping) and ({"inputs", "outputs"} <= found.keys()) else None


def _verl(row: Mapping[str, Any]) -> dict[str, Any]:
    return _apps({"input_output": dict(_ground_truth(row))})


def _evalplus(row: Mapping[str, Any]) -> dict[str, Any]:
    """Rows without expected values: the reference and the program are run on the same inputs by the test program."""
    prompt, entry = str(row.get("prompt") or ""), row["entry_point"]
    reference = row["canonical_solution"]
    if f"def {entry}" not in reference:
        reference = prompt + reference
    ast.parse(reference)
    inputs = [*(row.get("base_input") or ()), *(row.get("plus_input") or ())]
    if not inputs:
        raise ValueError("`base_input` and `plus_input` are empty")
    program = EVALPLUS.format(
        reference=reference, inputs=json.dumps(inputs), entry=entry, close=float(row.get("atol") or 0)
    )
    has_stub = f"def {entry}" in prompt
    out = {"style": "assert", "tests": program, "entry_point": entry, "solution": reference}
    return {**out, "prompt_code": prompt} if has_stub else out


EVALPLUS = """import copy, json, math
_space = {{}}
exec({reference!r}, _space)
_reference = _space[{entry!r}]
def _same(a, b):
    if isinstance(a, float) and isinstance(b, (int, float)):
        return a == b or abs(a - b) <= max({close!r}, 1e-6 * abs(a)) or (a != a and b != b)
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return all(_same(x, y) for x, y in zip(a, b))
    return a == b
def check(candidate):
    for _given in json.loads({inputs!r}):
        _wanted = _reference(*copy.deepcopy(_given))
        _found = candidate(*copy.deepcopy(_given))
        assert _same(_wanted, _found)
"""


def _humanevalx(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt = str(row["prompt"])
    names = [n.name for n in ast.parse(prompt.rstrip() + "\n    pass\n").body if isinstance(n, ast.FunctionDef)]
    test = str(row["test"])
    name = next((n for n in reversed(names) if f"check({n})" in test), names[-1])
    return {**_humaneval({**row, "entry_point": name}), "prompt_code": prompt}


def _kodcode(row: Mapping[str, Any]) -> dict[str, Any]:
    about = row.get("test_info") or []
    out = {"style": "assert", "tests": row["test"], "solution": row.get("solution")}
    names = [a.get("function_name") for a in about if isinstance(a, Mapping)]
    return {**out, "entry_point": names[0] if len(names) == 1 else None}


def _leetcode(row: Mapping[str, Any]) -> dict[str, Any]:
    out = {
        "style": "assert",
        "tests": row["test"],
        "setup": row.get("prompt") or LEETCODE_SETUP,
        "entry_point": row["entry_point"],
    }
    answer = row.get("response") or row.get("completion")
    return {**out, "solution": answer} if isinstance(answer, str) else out


def _text(value: object) -> str:
    return "\n".join(map(str, value)) + "\n" if isinstance(value, list) else str(value)


def _livecodebench(row: Mapping[str, Any]) -> dict[str, Any]:
    cases = [*_lcb_cases(row.get("public_test_cases")), *_lcb_cases(row.get("private_test_cases"))]
    calls = _called(cases, row)
    return calls or {"style": "stdio", "tests": [{"input": c["input"], "output": c["output"]} for c in cases]}


def _marked(row: Mapping[str, Any]) -> dict[str, Any]:
    """`tests` that are marked as calls or hold `inputs` and `outputs`, as DeepCoder has them; nothing for any others."""
    tests = row["tests"]
    tests = _parsed(tests.tolist() if hasattr(tests, "tolist") else tests)
    if row.get("style"):
        return {}
    if isinstance(tests, Mapping) and {"inputs", "outputs"} <= tests.keys():
        return _apps({**row, "input_output": tests})
    if isinstance(tests, Mapping) and isinstance(tests.get("functional"), str):
        return {"style": "assert", "tests": tests["functional"], "setup": LEETCODE_SETUP}
    if not isinstance(tests, list | tuple) or not all(isinstance(t, Mapping) and "input" in t for t in tests):
        return {}
    calls = _called(tests, row)
    return calls | _solution(row) if calls else {}


def _parsed(value: object) -> Any:
    """The list or object of a JSON text; anything else as it is.

    Raises:
        RepeatedKey: an object in it says a key twice.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return loads(value)
        except RepeatedKey:
            raise
        except ValueError:
            pass
    return value


def _called(cases: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """Cases that are calls, each by its `testtype` or `type`, or by a name for the function; nothing where none is one.

    Raises:
        ValueError: some of the cases are calls and others not, or they are of no function or of several.
    """
    common = _function(row)
    names = [_function(case) or common for case in cases]
    calls = [_is_call(case, name is not None) for case, name in zip(cases, names, strict=True)]
    if not any(calls):
        return {}
    if not all(calls):
        raise ValueError(f"test {calls.index(False)} reads its input and test {calls.index(True)} is a call")
    name = row.get("entry_point") or (names[0] if len(set(names)) == 1 else None)
    if name is None:
        raise ValueError("its tests are calls, and of which function is not said, or of several")
    return {
        "style": "function_call",
        "tests": [_call(case["input"], case["output"]) for case in cases],
        "entry_point": name,
        "setup": row.get("setup") or LEETCODE_SETUP,
    }


def _function(about: Mapping[str, Any]) -> str | None:
    """The function's name in a case or row: `fn_name`, or `func_name` of its `metadata`."""
    more = _parsed(about.get("metadata"))
    found = about.get("fn_name") or (more.get("func_name") if isinstance(more, Mapping) else None)
    return found or None


def _is_call(case: Mapping[str, Any], has_name: bool) -> bool:
    kind = case.get("testtype") or case.get("type")
    return kind in CALLS if kind in (*CALLS, *STREAMS) else has_name


def _call(given: object, wanted: object) -> dict[str, Any]:
    """One call: arguments as a list with a value, which APPS wraps in a list of one, or as a text with one in each line."""
    if isinstance(given, str):
        return {
            "args": [loads(a) for a in given.split("\n") if a.strip()],
            "expected": loads(wanted) if isinstance(wanted, str) else wanted,
        }
    return {"args": given, "expected_any": [wanted, *(wanted if isinstance(wanted, list) and len(wanted) == 1 else [])]}


def _lcb_cases(text: Any) -> list[dict[str, Any]]:
    if not text:
        return []
    if not isinstance(text, str):
        return list(text)
    try:
        found = loads(text)
    except RepeatedKey:
        raise
    except ValueError:
        packed = zlib.decompress(base64.b64decode(text))
        found = loads(_OnlyText(io.BytesIO(packed)).load())
    return list(found)


Maker = Callable[[Mapping[str, Any]], dict[str, Any]]
LAYOUTS: dict[str, tuple[set[str], Maker]] = {
    "evalplus": ({"base_input", "plus_input", "canonical_solution", "entry_point"}, _evalplus),
    "leetcodedataset": ({"test", "entry_point", "starter_code"}, _leetcode),
    "mbpp": ({"test_list"}, _mbpp),
    "humaneval": ({"test", "entry_point", "prompt"}, _humaneval),
    "humaneval-declaration": ({"test", "entry_point", "declaration"}, _humaneval),
    "humaneval-x": ({"test", "declaration", "prompt"}, _humanevalx),
    "kodcode": ({"test", "solution", "test_info"}, _kodcode),
    "livecodebench": ({"public_test_cases"}, lambda row: _livecodebench(row)),
    "livecodebench-private": ({"private_test_cases"}, lambda row: _livecodebench(row)),
    "codecontests": ({"public_tests", "private_tests"}, _codecontests),
    "acecode": ({"test_cases"}, _acecode),
    "verl": ({"reward_model"}, _verl),
    "apps": ({"input_output"}, _apps),
}
"""The columns by which a data set is known, most telling first, and what makes our columns of its own."""


class _OnlyText(pickle.Unpickler):
    """LiveCodeBench pickles a JSON text; anything that names a class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a file of tests")
