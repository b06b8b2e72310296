"""Data sets as they are published, brought to the columns of `code`.

How it works. `FORMATS` lists the data sets by the columns that tell them, most telling first; each has a function that
makes our columns of a row. Most of these only find the value that holds the tests and hand it to `shapes.tests_of`. A row
that has `tests` is taken at its word, but for tests that DeepCoder marks as calls or keeps as `inputs` and `outputs`.
What cannot be read is a bad row, with the format and the column.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grpo_verifiers.program.shapes import (
    CLOSE,
    LEETCODE_SETUP,
    STREAMS,
    Columns,
    Row,
    calls_of,
    parsed,
    tests_of,
    unpacked,
)
from grpo_verifiers.strict_json import RepeatedKey, loads
from grpo_verifiers.verifier import BadGold

PYTHON3 = 3  # the language of a solution, in CodeContests
OWN = ("tests", "answer")
FIELDS = (
    *("tests", "style", "entry_point", "prompt_code", "setup", "scoring", "timeout", "least_timeout", "mem_mb"),
    *("needs", "compare", "reference"),
)
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, SyntaxError, RecursionError, MemoryError)


def code_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """The verifier's inputs of one line of a file of code samples, whatever data set it follows.

    Raises:
        BadGold: the line is of a known data set but its tests cannot be read.
    """
    row = mapped(line)
    return {name: row[name] for name in FIELDS if row.get(name) is not None}


def mapped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the columns of `code` beside its own, from any format of public sets that is known.

    Raises:
        BadGold: no column holds tests, or they cannot be read; with the format and the column.
    """
    return read_row(row)[1]


def read_row(row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of the row's format, `code` for our own columns, and the row with the columns of `code` beside its own.

    Raises:
        BadGold: as `mapped`.
    """
    for name, known in FORMATS.items():
        if not set(known.columns) <= row.keys():
            continue
        of = "" if known.columns[0] in OWN else f"looks like a row of {name}, but "
        try:
            made = known.make(row)
        except BadGold as err:
            raise BadGold(f"{of}{err}") from err
        except UNREADABLE as err:
            raise BadGold(f"{of}`{known.columns[0]}` cannot be read: {type(err).__name__}: {err}"[:600]) from err
        if made is not None:
            return name, {**row, **made}
    raise BadGold(
        "no column holds the tests: `tests`, `test_list` or `answer`; or name it in `data.columns`. There are: "
        + ", ".join(sorted(map(str, row)))[:300]
    )


def solution_of(row: Row) -> Columns:
    """The answer that a row carries: the first of its `solutions`, or one under another name."""
    found = parsed(row.get("solutions"))
    names = ("gold_standard_solution", "solution", "solution_code", "completion", "response", "canonical_solution")
    first = found[0] if isinstance(found, list) and found else next((row[n] for n in names if row.get(n)), None)
    return {"solution": first} if isinstance(first, str) else {}


def evalplus(row: Row) -> Columns:
    """Rows without expected values: the reference and the program are run on the same inputs, and their values compared."""
    prompt, entry = str(row.get("prompt") or ""), row["entry_point"]
    reference = row["canonical_solution"]
    if f"def {entry}" not in reference:
        reference = prompt + reference
    ast.parse(reference)
    inputs = [*(parsed(row.get("base_input")) or ()), *(parsed(row.get("plus_input")) or ())]
    if not inputs:
        raise ValueError("`base_input` and `plus_input` are empty")
    tests = [{"args": given, "float_tol": float(row.get("atol") or 0) or CLOSE} for given in inputs]
    out = {
        "style": "function_call",
        "tests": tests,
        "reference": reference,
        "entry_point": entry,
        "solution": reference,
    }
    return {**out, "prompt_code": prompt} if f"def {entry}" in prompt else out


def leetcodedataset(row: Row) -> Columns | None:
    """`check` on a method; answers that leave the class off are taken as well, so the entry point is the bare name."""
    owner, _, entry = str(row["entry_point"]).replace("().", ".").rpartition(".")
    if owner != "Solution" and "starter_code" not in row:
        return None
    return {
        "style": "assert",
        "tests": row["test"],
        "setup": row.get("prompt") or LEETCODE_SETUP,
        "entry_point": entry,
        **solution_of({**row, "solution": None}),
    }


def bigcodebench(row: Row) -> Columns:
    """A unittest file on one function, whose stub begins the program."""
    prompt = str(row.get("complete_prompt") or row.get("code_prompt") or "")
    out = {"style": "assert", "tests": row["test"], "prompt_code": prompt, "entry_point": row["entry_point"]}
    body = row.get("canonical_solution")
    return {**out, "solution": prompt + body} if isinstance(body, str) else out


def classeval(row: Row) -> Columns:
    """A unittest file on one class."""
    return {
        "style": "assert",
        "tests": row["test"],
        "entry_point": row["class_name"],
        "setup": "\n".join(parsed(row.get("import_statement")) or ()),
        **solution_of(row),
    }


def mbpp(row: Row) -> Columns:
    """Asserts, the sanitized ones with imports, and EvalPlus's further tests where they are there."""
    tests = [str(t) for t in parsed(row["test_list"])]
    if isinstance(row.get("test"), str) and row["test"].strip():
        tests.append(row["test"])
    imports = parsed(row.get("test_imports"))
    setup = "\n".join([*(imports if imports is not None else ()), str(row.get("test_setup_code") or "")]).strip()
    out: Columns = {"style": "assert", "tests": tests, "setup": setup}
    if isinstance(row.get("code"), str):
        name = _defined_and_called(row["code"], tests)
        out |= {"entry_point": name} if name else {}
        out["solution"] = row["code"].replace("\r\n", "\n")
    return out | ({"entry_point": row["entry_point"]} if row.get("entry_point") else {})


def _defined_and_called(code: str, tests: list[str]) -> str | None:
    """The function of the reference that the tests call, whatever else of that name there is."""
    try:
        defined = {n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        calls = [n for t in tests for n in ast.walk(ast.parse(t)) if isinstance(n, ast.Call)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [n.func.id for n in calls if isinstance(n.func, ast.Name)]
    return next((n for n in names if n in defined), None)


def humaneval(row: Row) -> Columns:
    """`check(candidate)` on a function whose stub is the prompt, or stands beside it."""
    prompt = row.get("prompt") or row.get("declaration") or ""
    out = {"style": "assert", "tests": row["test"], "prompt_code": prompt, "entry_point": row["entry_point"]}
    body = row.get("canonical_solution")
    return {**out, "solution": prompt + body} if isinstance(body, str) else out


def humanevalx(row: Row) -> Columns:
    """HumanEval without a column for the function's name."""
    prompt = str(row["prompt"])
    names = [n.name for n in ast.parse(prompt.rstrip() + "\n    pass\n").body if isinstance(n, ast.FunctionDef)]
    test = str(row["test"])
    name = next((n for n in reversed(names) if f"check({n})" in test), names[-1])
    return {**humaneval({**row, "entry_point": name}), "prompt_code": prompt}


def kodcode(row: Row) -> Columns:
    """A pytest file that imports what it tests from `solution`."""
    about = parsed(row.get("test_info")) or ()
    names = [a.get("function_name") for a in about if isinstance(a, Mapping)]
    test = row["test"] if isinstance(row.get("test"), str) else row["test_code"]
    out = {"style": "assert", "tests": test, "entry_point": names[0] if len(names) == 1 else None}
    return out | solution_of(row)


def exercism(row: Row) -> Columns:
    """A test file that imports from a module of the exercise's name, which the solution stands for."""
    module = re.escape(str(row["slug"]).replace("-", "_"))
    tests = re.sub(rf"^from {module} import\b", "from solution import", str(row["tests"]), flags=re.MULTILINE)
    return {"tests": re.sub(rf"^import {module}$", rf"import solution as {module}", tests, flags=re.MULTILINE)}


def deepcoder(row: Row) -> Columns | None:
    """`tests` that are marked as calls or programs, or that are an object; any others are our own."""
    tests = None if row.get("style") or "test_list" in row else parsed(row["tests"])
    if isinstance(tests, Mapping) and not {"inputs", "functional", "test_cases"}.isdisjoint(tests):
        return tests_of(tests, row) | solution_of(row)
    if not isinstance(tests, list | tuple) or not all(isinstance(t, Mapping) and "input" in t for t in tests):
        return None
    is_marked = all((t.get("testtype") or t.get("type")) in STREAMS and "output" in t for t in tests)
    made = tests_of(tests, row) if tests and is_marked else calls_of(tests, row)
    return made | solution_of(row) if made else None


def livecodebench(row: Row) -> Columns:
    """Public and hidden cases, marked as calls or as programs."""
    cases = list[Row]()
    for column in ("public_test_cases", "private_test_cases"):
        stored = row.get(column)
        found = parsed(stored) if stored is not None else None
        if isinstance(found, str) and found.strip():
            try:
                found = loads(unpacked(found))
            except ValueError as err:
                raise BadGold(f"`{column}` cannot be read: {err}") from err
        cases += found or ()
    return tests_of(cases, row, "lines")


def codecontests(row: Row) -> Columns:
    """Three columns of inputs and outputs; the first solution in Python 3 is the answer."""
    for column in ("input_file", "output_file"):
        if row.get(column):
            raise BadGold(f"`{column}` is {row[column]!r}: its programs read and write files")
    cases = list[Row]()
    for column in ("public_tests", "private_tests", "generated_tests"):
        part = parsed(row.get(column)) or {"input": [], "output": []}
        cases += [{"input": i, "output": o} for i, o in zip(part["input"], part["output"], strict=True)]
    given = row.get("solutions") or {}
    found = zip(given.get("language", ()), given.get("solution", ()), strict=False)
    python = next((text for language, text in found if language == PYTHON3), None)
    return tests_of(cases, row) | _time_limit(row) | ({"solution": python} if python else {})


def apps(row: Row) -> Columns:
    """`input_output` of programs or of calls: APPS, and TACO with a time limit."""
    return tests_of(row["input_output"], row) | _time_limit(row) | solution_of(row)


def _time_limit(row: Row) -> Columns:
    """The limit of a row in seconds, where it gives programs longer than the verifier's option: `2.0 seconds`, or an object."""
    limit = parsed(row.get("time_limit"))
    if isinstance(limit, Mapping):
        return {"least_timeout": (limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9}
    number, _, unit = limit.strip().partition(" ") if isinstance(limit, str) else ("", "", "")
    is_seconds = unit.strip().startswith("s") and number.replace(".", "", 1).isdecimal()
    return {"least_timeout": float(number)} if is_seconds else {}


def verification_info(row: Row) -> Columns | None:
    """SYNTHETIC-1 and open-r1's verifiable coding problems; their other tasks have no `test_cases`."""
    about = parsed(row["verification_info"])
    is_code = isinstance(about, Mapping) and "test_cases" in about
    return tests_of(about, row) | solution_of(row) if is_code else None


def nemo_gym(row: Row) -> Columns | None:
    """`verifier_metadata`: cases of programs or calls, or a row of BigCodeBench."""
    about = parsed(row["verifier_metadata"])
    if not isinstance(about, Mapping):
        return None
    if "unit_tests" in about:
        return tests_of(about["unit_tests"], row, "lines") | solution_of(row)
    return bigcodebench(about) if {"test", "entry_point"} <= about.keys() else None


def open_instruct(row: Row) -> Columns | None:
    """`ground_truth`: asserts, or inputs and outputs, where `dataset` names a set of code."""
    names = row["dataset"]
    is_code = any(str(name).startswith("code") for name in ([names] if isinstance(names, str) else names or ()))
    return tests_of(row["ground_truth"], row) | solution_of(row) if is_code else None


def verl(row: Row) -> Columns | None:
    """`reward_model.ground_truth`: any of the shapes; other tasks have an answer there."""
    model = row["reward_model"]
    try:
        truth = parsed(model.get("ground_truth") if isinstance(model, Mapping) else None)
    except RepeatedKey as err:
        raise BadGold(f"`reward_model.ground_truth`: {err}") from None
    if isinstance(truth, list) and truth:
        is_code = all("input" in t if isinstance(t, Mapping) else "assert" in str(t) for t in truth)
    else:
        is_code = isinstance(truth, Mapping) and not {"inputs", "functional", "test_cases"}.isdisjoint(truth)
    return tests_of(truth, row) if is_code else None


def own_answer(row: Row) -> Columns | None:
    """Tests under the name that every other verifier reads."""
    tests = row["answer"]
    if not isinstance(tests, list) and not (isinstance(tests, str) and "assert" in tests):
        return None
    return {"tests": tests} | (deepcoder({**row, "tests": tests}) or {})


@dataclass(frozen=True, slots=True)
class Format:
    """A data set: the columns that tell it, of which the first holds the tests, and what makes ours of a row.

    `make` returns None for a row that only looks like one, as a problem of mathematics in verl's form does.
    """

    columns: tuple[str, ...]
    make: Callable[[Row], Columns | None]


FORMATS = {
    "exercism": Format(("tests", "slug"), exercism),
    "deepcoder": Format(("tests",), deepcoder),
    "code": Format(("tests",), lambda row: {} if "test_list" not in row else None),
    "evalplus": Format(("base_input", "plus_input", "canonical_solution", "entry_point"), evalplus),
    "leetcodedataset": Format(("test", "entry_point", "starter_code"), leetcodedataset),
    "leetcodedataset-v0.2": Format(("test", "entry_point", "prompt"), leetcodedataset),
    "bigcodebench": Format(("test", "entry_point", "complete_prompt"), bigcodebench),
    "classeval": Format(("test", "skeleton", "class_name"), classeval),
    "mbpp": Format(("test_list",), mbpp),
    "humaneval": Format(("test", "entry_point", "prompt"), humaneval),
    "humaneval-declaration": Format(("test", "entry_point", "declaration"), humaneval),
    "humaneval-x": Format(("test", "declaration", "prompt"), humanevalx),
    "kodcode": Format(("test", "solution", "test_info"), kodcode),
    "kodcode-pipeline": Format(("test_code", "solution", "test_info"), kodcode),
    "livecodebench": Format(("public_test_cases",), livecodebench),
    "livecodebench-private": Format(("private_test_cases",), livecodebench),
    "codecontests": Format(("public_tests", "private_tests"), codecontests),
    "verification-info": Format(("verification_info",), verification_info),
    "nemo-gym": Format(("verifier_metadata",), nemo_gym),
    "open-instruct": Format(("ground_truth", "dataset"), open_instruct),
    "acecode": Format(("test_cases",), lambda row: tests_of(row["test_cases"], row) | solution_of(row)),
    "verl": Format(("reward_model",), verl),
    "taco": Format(("input_output", "skill_types"), apps),
    "apps": Format(("input_output",), apps),
    "code-answer": Format(("answer",), own_answer),
}
"""Most telling first; the first one that makes something of a row is its format."""
