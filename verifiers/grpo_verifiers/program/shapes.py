"""The shapes in which data sets store tests, whatever the column, brought to the columns of `code`.

Asserts, cases of input and output, calls with their arguments, an object of `inputs` and `outputs`. A list or an object may
be stored as a JSON text, as the text that Python writes (`parsed`), or packed (`unpacked`, which reads a pickled text without
unpickling anything). What keeps to none of the shapes raises.
"""

from __future__ import annotations

import ast
import base64
import pickletools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_verifiers.strict_json import RepeatedKey, loads

Row = Mapping[str, Any]
Columns = dict[str, Any]

CLOSE = 1e-6  # what the checkers of APPS, TACO and CodeContests let decimals differ by, or less
MOST_UNPACKED = 1 << 30
CALLS = ("functional", "function_call")
STREAMS = {"stdin": "lines", "stdin_stdout": "tokens"}
"""How cases of LiveCodeBench and of PrimeIntellect are marked as programs, and how their checkers compare."""
TEXT_OPCODES = {
    *("PROTO", "FRAME", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE", "UNICODE"),
    *("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"),
}
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


def parsed(value: object) -> Any:
    """The list or object of a JSON text or of one that Python wrote, an array as a list, anything else as it is.

    Raises:
        RepeatedKey: an object in it says a key twice.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return loads(value)
    except RepeatedKey:
        raise
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def unpacked(text: str) -> str:
    """The text in base64 of a compressed pickle, as LiveCodeBench stores hidden tests, or of the compressed text itself.

    Nothing is unpickled: the pickle's steps are read, and what is more than one text is refused.

    Raises:
        ValueError: the text is packed in another way, or holds more than a text.
    """
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(base64.b64decode(text), MOST_UNPACKED)
    except zlib.error as err:
        raise ValueError(f"neither JSON nor packed: {err}") from err
    if inflate.unconsumed_tail:
        raise ValueError("more than 1 GiB when unpacked")
    if data[:1] in (b"[", b"{"):
        return data.decode()
    steps = list(pickletools.genops(data))
    found = [value for step, value, _ in steps if isinstance(value, str) and "UNICODE" in step.name]
    if len(found) != 1 or not {step.name for step, _, _ in steps} <= TEXT_OPCODES:
        raise ValueError("a pickle of more than a text, which is not opened")
    return found[0]


def tests_of(value: object, row: Row, how: str = "tokens") -> Columns:
    """The columns of `code` for tests of any of the known shapes.

    `how` compares what programs print, where the cases are not marked themselves.

    Raises:
        ValueError, KeyError, TypeError: the shape is none of these, or not kept to.
    """
    tests = parsed(value)
    if isinstance(tests, list | tuple) and len(tests) == 1 and isinstance(tests[0], str):
        tests = parsed(tests[0]) if isinstance(parsed(tests[0]), list | dict) else tests
    if isinstance(tests, Mapping):
        if "test_cases" in tests:
            language = str(tests.get("language") or "python")
            if not language.lower().startswith("py"):
                raise ValueError(f"its tests are for programs in {language}")
            return tests_of(tests["test_cases"], row, how)
        if isinstance(tests.get("functional"), str):
            return {"style": "assert", "tests": tests["functional"], "setup": LEETCODE_SETUP}
        if {"inputs", "outputs"} <= tests.keys():
            return _pairs(tests, row, how)
        raise ValueError("an object with neither `inputs` and `outputs` nor `functional` nor `test_cases`")
    if isinstance(tests, str) and "assert" in tests:
        return {"style": "assert", "tests": tests}
    if not isinstance(tests, list | tuple) or not tests:
        raise ValueError("it holds no tests")
    if all(isinstance(t, str) for t in tests):
        return {"style": "assert", "tests": list(tests)}
    return calls_of(tests, row) or {"style": "stdio", **_streams(tests, how)}


def _streams(cases: Sequence[Row], how: str) -> Columns:
    kinds = {case.get("testtype") or case.get("type") for case in cases}
    how = next((STREAMS[kind] for kind in kinds if kind in STREAMS), how)
    close = {"float_tol": CLOSE} if how == "tokens" else {}
    return {
        "tests": [{"input": _text(c["input"]), "output": _text(c["output"]), **close} for c in cases],
        "compare": how,
    }


def _pairs(cases: Row, row: Row, how: str) -> Columns:
    """Tests as an object of `inputs` and `outputs`; calls where it names a function."""
    inputs, outputs = parsed(cases["inputs"]), parsed(cases["outputs"])
    pairs = list(zip(inputs, outputs, strict=True))
    name = cases.get("fn_name") or row.get("fn_name") or None
    if not name:
        return {"style": "stdio", **_streams([{"input": i, "output": o} for i, o in pairs], how)}
    if _are_argument_lists(inputs):
        inputs = [loads(i) for i in inputs]
        pairs = [(i, loads(o) if isinstance(o, str) else o) for i, o in zip(inputs, outputs, strict=True)]
    tests = [_call(given, wanted) for given, wanted in pairs]
    return {"style": "function_call", "tests": tests, "entry_point": name, "setup": LEETCODE_SETUP}


def _are_argument_lists(inputs: Sequence[object]) -> bool:
    """Whether texts are lists of all arguments (NeMo Gym) and not an argument a line (LiveCodeBench).

    One list in each line may be either; lists of different lengths are no arguments of one function.
    """
    values = [parsed(i) if isinstance(i, str) and "\n" not in i.strip() else None for i in inputs]
    return len({len(v) if isinstance(v, list) else -1 for v in values}) == 1 and isinstance(values[0], list)


def calls_of(cases: Sequence[Row], row: Row) -> Columns:
    """Cases that are calls, each by its `testtype` or `type`, or by a name for the function; nothing where none is one.

    Raises:
        ValueError: some of the cases are calls and others not, or they are of no function or of several.
    """
    common = _function(row)
    names = [_function(case) or common for case in cases]
    calls = []
    for case, name in zip(cases, names, strict=True):
        kind = case.get("testtype") or case.get("type")
        calls.append(kind in CALLS if kind in (*CALLS, *STREAMS) else name is not None)
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


def _function(about: Row) -> str | None:
    """The function's name in a case or row: `fn_name`, or `func_name` of its `metadata`."""
    more = parsed(about.get("metadata"))
    found = about.get("fn_name") or (more.get("func_name") if isinstance(more, Mapping) else None)
    return found or None


def _call(given: object, wanted: object) -> Columns:
    """One call: arguments as a list with a value, which APPS wraps in a list of one, or as a text with one in each line."""
    if isinstance(given, str):
        return {
            "args": [loads(a) for a in given.split("\n") if a.strip()],
            "expected": loads(wanted) if isinstance(wanted, str) else wanted,
        }
    return {"args": given, "expected_any": [wanted, *(wanted if isinstance(wanted, list) and len(wanted) == 1 else [])]}


def _text(value: object) -> str:
    return "\n".join(map(str, value)) + "\n" if isinstance(value, list) else str(value)
