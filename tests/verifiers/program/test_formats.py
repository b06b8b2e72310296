"""A small row in the shape of each published data set: which format is read of it, what is paid, what is refused and why."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import pytest

from grpo_verifiers import BadGold
from grpo_verifiers.program import CodeVerifier, code_row
from grpo_verifiers.program.formats import FORMATS, read_row
from grpo_verifiers.sandbox.view import host_view

STUB = 'def shift(xs: list, k: int) -> list:\n    """Add k to each."""\n'
BODY = "    return [x + k for x in xs]\n"
FUNCTION = STUB + BODY
METHOD = (
    "class Solution:\n    def shift(self, xs: List[int], k: int) -> List[int]:\n        return [x + k for x in xs]\n"
)
PROGRAM = "n = int(input())\nprint(n + 2)\nprint(n + 3)\n"
CHECK = "def check(candidate):\n    assert candidate([3, 1], 2) == [5, 3]\n    assert candidate(xs=[], k=1) == []\n"
ASSERTS = ["assert shift([3, 1], 2) == [5, 3]", "assert shift([], 1) == []"]
PYTEST = "import pytest\nfrom solution import shift\n\ndef test_some():\n    assert shift([3, 1], 2) == [5, 3]\n"
UNITTEST = (
    "import unittest\n\nclass TestCases(unittest.TestCase):\n    def test_some(self):\n"
    "        self.assertEqual(shift([3, 1], 2), [5, 3])\n"
)
CASES = {"inputs": ["1\n", "4\n"], "outputs": ["3\n4\n", "6\n7\n"]}
STREAMED = [{"input": i, "output": o} for i, o in zip(CASES["inputs"], CASES["outputs"], strict=True)]
CALLED = [{"type": "function_call", "fn_name": "shift", "input": [[3, 1], 2], "output": [5, 3]}]
FUNCTIONAL = [{"input": "[3, 1]\n2", "output": "[5, 3]", "testtype": "functional"}]
INFO = {"language": "python", "test_cases": CALLED}
EMPTY = {"input": [], "output": []}


def packed(cases: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(cases))).decode()


LEETCODE = {"prompt": "from typing import *\n", "entry_point": "Solution().shift", "test": CHECK, "completion": METHOD}
BIGCODE = {"test": UNITTEST, "entry_point": "shift"}
CONTEST = {"public_tests": {"input": ["1\n"], "output": ["3\n4\n"]}, "private_tests": EMPTY, "generated_tests": EMPTY}
KODCODE = {"question": "q", "solution": FUNCTION, "test_info": [{"function_name": "shift"}]}
PLUS = "inputs = [[[3, 1], 2], [[], 1]]\nresults = [[5, 3], []]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n    assert shift(*inp) == exp"

ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("humaneval", {"prompt": STUB, "entry_point": "shift", "canonical_solution": BODY, "test": CHECK}, FUNCTION),
    ("humaneval-declaration", {"declaration": STUB, "entry_point": "shift", "test": CHECK}, FUNCTION),
    ("humaneval-x", {"prompt": STUB, "declaration": STUB, "test": CHECK + "check(shift)"}, FUNCTION),
    ("evalplus", {"prompt": STUB, "entry_point": "shift", "canonical_solution": BODY, "contract": "", "atol": 0,
                  "base_input": [[[3, 1], 2]], "plus_input": [[[], 1]]}, FUNCTION),
    ("mbpp", {"text": "q", "code": FUNCTION, "test_list": ASSERTS, "test_setup_code": "", "challenge_test_list": []}, FUNCTION),
    ("mbpp", {"prompt": "q", "code": FUNCTION, "test_imports": ["import math"], "test_list": ASSERTS}, FUNCTION),
    ("mbpp", {"prompt": "q", "code": FUNCTION, "test_imports": [], "test_list": ASSERTS, "test": PLUS}, FUNCTION),
    ("kodcode", {**KODCODE, "test": PYTEST}, FUNCTION),
    ("kodcode", {**KODCODE, "test": PYTEST, "test_info": None}, FUNCTION),
    ("kodcode", {**KODCODE, "test": PYTEST, "test_info": repr(KODCODE["test_info"])}, FUNCTION),
    ("kodcode-pipeline", {**KODCODE, "test_code": PYTEST}, FUNCTION),
    ("leetcodedataset-v0.2", {**LEETCODE, "meta": {"lang_code": ""}, "input_output": []}, METHOD),
    ("leetcodedataset", {**LEETCODE, "starter_code": "class Solution:\n    def shift"}, METHOD),
    ("leetcodedataset", {**LEETCODE, "starter_code": "class Solution:\n    def shift"}, FUNCTION),
    ("bigcodebench", {**BIGCODE, "complete_prompt": STUB, "canonical_solution": BODY, "libs": "['random']"}, FUNCTION),
    ("classeval", {"skeleton": "class Shifter:\n    pass\n", "class_name": "Shifter", "import_statement": ["import math"],
                   "solution_code": "class Shifter:\n    def shift(self, xs, k):\n        return [x + k for x in xs]\n",
                   "test": UNITTEST.replace("shift(", "Shifter().shift(")},
     "class Shifter:\n    def shift(self, xs, k):\n        return [x + k + 0 * math.pi for x in xs]\n"),
    ("exercism", {"slug": "up-shift", "tests": UNITTEST.replace("import unittest", "import unittest\nfrom up_shift import (\n    shift,\n)")},
     FUNCTION),
    ("exercism", {"slug": "up-shift", "tests": PYTEST.replace("from solution import shift", "import up_shift").replace("shift([", "up_shift.shift([")},
     FUNCTION),
    ("apps", {"input_output": json.dumps(CASES), "solutions": json.dumps([PROGRAM])}, PROGRAM),
    ("apps", {"input_output": json.dumps({"fn_name": "shift", "inputs": [[[3, 1], 2]], "outputs": [[[5, 3]]]})}, METHOD),
    ("taco", {"input_output": json.dumps(CASES), "skill_types": "['Sorting']", "raw_tags": "[]", "time_limit": "2.0 seconds"}, PROGRAM),
    ("codecontests", {**CONTEST, "solutions": {"language": [2, 3], "solution": ["int", PROGRAM]}, "input_file": ""}, PROGRAM),
    ("livecodebench", {"public_test_cases": json.dumps(FUNCTIONAL), "private_test_cases": packed(json.dumps(FUNCTIONAL)),
                       "metadata": json.dumps({"func_name": "shift"}), "starter_code": ""}, METHOD),
    ("livecodebench", {"public_test_cases": json.dumps([{**c, "testtype": "stdin"} for c in STREAMED]),
                       "private_test_cases": "[]", "metadata": "{}"}, PROGRAM),
    ("livecodebench-private", {"private_test_cases": packed(json.dumps([{**c, "testtype": "stdin"} for c in STREAMED]))}, PROGRAM),
    ("deepcoder", {"problem": "q", "tests": json.dumps([{**FUNCTIONAL[0], "metadata": {"func_name": "shift"}}]), "metadata": {"func_name": "shift"}}, METHOD),
    ("deepcoder", {"problem": "q", "solutions": [f"```python\n{METHOD}```"], "tests": json.dumps(CALLED)}, METHOD),
    ("deepcoder", {"problem": "q", "tests": json.dumps([{**c, "type": "stdin_stdout", "fn_name": None} for c in STREAMED])}, PROGRAM),
    ("deepcoder", {"problem": "q", "tests": json.dumps(CASES)}, PROGRAM),
    ("deepcoder", {"problem": "q", "tests": json.dumps({"functional": CHECK + "check(Solution().shift)"})}, METHOD),
    ("code", {"problem": "q", "tests": json.dumps(STREAMED)}, PROGRAM),
    ("verification-info", {"prompt": "q", "task_type": "verifiable_code", "gold_standard_solution": f"```python\n{METHOD}```",
                           "verification_info": json.dumps(INFO), "metadata": "{}"}, METHOD),
    ("verification-info", {"prompt": "q", "gold_standard_solution": None, "verification_info": repr({**INFO, "more": None})}, METHOD),
    ("verification-info", {"prompt": "q", "verification_info": {"language": "python", "test_cases": [
        {**c, "type": "stdin_stdout", "fn_name": None} for c in STREAMED]}}, PROGRAM),
    ("open-instruct", {"messages": [], "dataset": "code", "ground_truth": ASSERTS}, FUNCTION),
    ("open-instruct", {"messages": [], "dataset": ["code"], "ground_truth": [json.dumps(ASSERTS)]}, FUNCTION),
    ("open-instruct", {"messages": [], "dataset": "code_stdio", "ground_truth": json.dumps(STREAMED)}, PROGRAM),
    ("nemo-gym", {"responses_create_params": {}, "verifier_metadata": {"unit_tests": {**CASES, "fn_name": None}}}, PROGRAM),
    ("nemo-gym", {"verifier_metadata": json.dumps({"unit_tests": {"inputs": ["[[3, 1], 2]"], "outputs": ["[5, 3]"], "fn_name": "shift"}})}, METHOD),
    ("nemo-gym", {"verifier_metadata": {"unit_tests": {"inputs": ["[3, 1]\n2"], "outputs": ["[5, 3]"], "fn_name": "shift"}}}, METHOD),
    ("nemo-gym", {"verifier_metadata": {**BIGCODE, "code_prompt": STUB, "split": "hard"}}, FUNCTION),
    ("acecode", {"question": "q", "test_cases": ASSERTS, "inferences": []}, FUNCTION),
    ("acecode", {"question": "q", "test_cases": json.dumps(ASSERTS)}, FUNCTION),
    ("verl", {"data_source": "apps", "reward_model": {"style": "rule", "ground_truth": json.dumps(CASES)}}, PROGRAM),
    ("verl", {"reward_model": {"ground_truth": json.dumps(ASSERTS)}}, FUNCTION),
    ("verl", {"reward_model": {"ground_truth": json.dumps({"functional": CHECK + "check(Solution().shift)"})}}, METHOD),
    ("verl", {"reward_model": {"ground_truth": json.dumps([{**FUNCTIONAL[0], "metadata": {"func_name": "shift"}}])}}, METHOD),
    ("code", {"tests": ASSERTS}, FUNCTION),
    ("code-answer", {"answer": ASSERTS}, FUNCTION),
]  # fmt: skip


def wrong(program: str) -> str:
    return program.replace("x + k", "x - k").replace("n + 2", "n - 2")


@pytest.mark.parametrize(("name", "row", "program"), ROWS, ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(ROWS)])
def test_a_row_is_read_as_it_is_published(verifier: CodeVerifier, name: str, row: dict[str, Any], program: str) -> None:
    assert read_row(row)[0] == name
    assert verifier.verify(f"```python\n{program}```", row).outcome == "right"
    assert verifier.verify(f"```python\n{wrong(program)}```", row).score == 0.0
    gold = verifier.gold_text(row)
    assert gold is None or verifier.verify(gold, row).outcome == "right"


def test_every_format_has_a_row_here() -> None:
    assert {name for name, _, _ in ROWS} == set(FORMATS)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**CONTEST, "input_file": "in.txt"}, "`input_file` is 'in.txt': its programs read and write files"),
        ({"verification_info": {**INFO, "language": "cpp"}}, "`verification_info` cannot be read: .*programs in cpp"),
        ({"verification_info": repr({**INFO, "test_cases": []})}, "verification-info, but `verification_info`.* no tests"),
        ({"verifier_metadata": {"unit_tests": "{'inputs': ["}}, "nemo-gym, but `verifier_metadata` cannot be read"),
        ({"dataset": "code", "ground_truth": "42"}, "open-instruct, but `ground_truth` cannot be read"),
        ({"test_cases": [3]}, "acecode, but `test_cases` cannot be read"),
        ({"input_output": "{'inputs': [1]}"}, "apps, but `input_output` cannot be read"),
        ({"input_output": {"inputs": ["1"], "outputs": []}}, "apps, but `input_output` cannot be read"),
        ({"public_test_cases": "[]", "private_test_cases": "no base64"}, "livecodebench, but `private_test_cases` cannot be read"),
        ({"public_test_cases": "[]", "private_test_cases": packed([1])}, "more than a text, which is not opened"),
        ({"public_test_cases": "[]", "private_test_cases": packed(["a", "b"])}, "which is not opened"),
        ({"reward_model": {"ground_truth": '{"inputs": [], "inputs": []}'}}, "verl, but `reward_model.ground_truth`"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_names_format_and_column(row: dict[str, Any], words: str) -> None:
    with pytest.raises(BadGold, match=words):
        code_row(row)


@pytest.mark.parametrize(
    "row",
    [
        {"verification_info": json.dumps({"ground_truth": "42"}), "task_type": "verifiable_math"},
        {"verifier_metadata": {"expected_answer": "42"}},
        {"verifier_metadata": None},
        {"ground_truth": "42", "dataset": "gsm8k"},
        {"reward_model": {"ground_truth": "42"}},
        {"reward_model": {"ground_truth": ["42", "43"]}},
        {"reward_model": None},
        {"answer": "42"},
    ],
)
def test_other_tasks_of_the_same_sets_are_no_rows_of_code(row: dict[str, Any]) -> None:
    with pytest.raises(BadGold, match="no column holds the tests"):
        code_row(row)


def test_a_library_of_a_row_that_is_not_here_is_no_verdict(verifier: CodeVerifier) -> None:
    row = {**BIGCODE, "complete_prompt": "import nowhere\n" + STUB, "libs": "['nowhere']"}
    assert "nowhere" not in dict(host_view().packages)
    for program in (FUNCTION, wrong(FUNCTION)):
        verdict = verifier.verify(f"```python\n{program}```", row)
        assert (verdict.score, verdict.reason) == (None, "no_library")


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("2.0 seconds", 4.0), ("10.0 seconds", 10.0), ({"seconds": 8, "nanos": 500_000_000}, 8.5), (None, 4.0)],
)
def test_a_longer_time_limit_of_a_row_counts(verifier: CodeVerifier, limit: object, seconds: float) -> None:
    row = {"input_output": json.dumps(CASES), "skill_types": "[]", "time_limit": limit}
    assert verifier.compile(row).timeout_s == seconds
    assert verifier.compile({**row, "timeout": 1.0}).timeout_s == 1.0


@pytest.mark.parametrize(
    ("printed", "score"),
    [("  3\n 4  \n", 1.0), ("\n3\n4", 1.0), ("3 4\n", 0.0), ("3\n\n4\n", 0.0), ("03\n4\n", 0.0), ("3\n5\n", 0.0)],
)
def test_livecodebench_strips_each_line(verifier: CodeVerifier, printed: str, score: float) -> None:
    row = {"public_test_cases": [{"input": "1\n", "output": "3\n4\n", "testtype": "stdin"}]}
    assert verifier.verify(f"import sys\nsys.stdout.write({printed!r})", row).score == score


def test_lists_of_one_length_are_arguments_and_others_an_argument_each() -> None:
    def args(inputs: list[str]) -> list[Any]:
        tests = {"inputs": inputs, "outputs": ["1"] * len(inputs), "fn_name": "f"}
        return [t["args"] for t in code_row({"verifier_metadata": {"unit_tests": tests}})["tests"]]

    assert args(["[[1, 2], 3]", "[[], 4]"]) == [[[1, 2], 3], [[], 4]]
    assert args(["[1, 2]", "[1, 2, 3]"]) == [[[1, 2]], [[1, 2, 3]]]
    assert args(["[1, 2]\n3", "[]\n4"]) == [[[1, 2], 3], [[], 4]]
    assert args(["7", "8"]) == [[7], [8]]


def test_the_formats_of_rows_are_counted_by_way(verifier: CodeVerifier) -> None:
    rows = [
        {"test_list": ASSERTS},
        {"test_list": ["assert shift(*[[1], 2]) == max([3], [1])"]},
        {**KODCODE, "test": PYTEST},
    ]
    rows += [
        {"test_list": ["assert shift([1], 2) == other([3])"]},
        {**BIGCODE, "complete_prompt": "import nowhere\n" + STUB},
    ]
    assert verifier.describe([verifier.compile(row) for row in rows]) == [
        "bigcodebench: 1 no library `nowhere`",
        "kodcode: 1 values",
        "mbpp: 2 values, 1 wall",
    ]


def test_what_the_wall_does_not_carry_is_counted_by_its_kind(verifier: CodeVerifier) -> None:
    carried = {"test_list": ["assert shift([1], 2) == other([3])"]}
    rows = [
        {"test_list": ASSERTS},
        carried,
        *({"test_list": [f"import {name}\nassert shift([1], 2) == other([3])"]} for name in ("threading", "asyncio")),
        {"test_list": ["import queue, threading\nassert shift([1], 2) == other([3])"]},
        {"test_list": ["from tkinter import *\nclass Own(Base): pass\nassert shift(Own()) == other([3])"]},
        {"test_list": ["import threading\nassert shift([1], 2) == other([3])"], "trusted_objects": True},
    ]
    golds = [verifier.compile(row) for row in rows]
    assert verifier.describe(golds) == [
        "mbpp: 1 values, 1 wall, 1 trusted (the solution's own code decides), 4 not supported: threads 2, asyncio 1, subclassing 1"
    ]
    assert verifier.verify(FUNCTION, rows[2]).reason == "not_supported"
    broken = verifier.compile({"test_list": ["assert shift([1], 2) == other([3])\nnonlocal x"]})
    assert verifier.describe([broken]) == ["mbpp: 1 wall"]


def test_a_verdict_carries_its_way(verifier: CodeVerifier) -> None:
    tests = "xs = shift([1], 2)\nxs.append(4)\nassert xs == [3, 4]"
    for row, way in (
        ({"tests": ASSERTS[0]}, "values"),
        ({"tests": tests}, "wall"),
        ({"tests": tests, "trusted_objects": True}, "trusted"),
    ):
        for code, score in ((FUNCTION, 1.0), (FUNCTION.replace("+", "-"), 0.0), (FUNCTION + "\nraise OSError", 0.0)):
            verdict = verifier.verify(code, {"entry_point": "shift", **row})
            assert (verdict.score, verdict.as_json()["way"]) == (score, way)


def plus(body: str, inputs: list[Any], **more: object) -> dict[str, Any]:
    prompt = 'def shift(xs):\n    """Shift."""\n'
    return {
        "prompt": prompt,
        "entry_point": "shift",
        "canonical_solution": body,
        "base_input": inputs,
        "plus_input": [],
        **more,
    }


@pytest.mark.parametrize(
    ("program", "score"),
    [
        ("def shift(xs): return tuple(x / 3 for x in xs)", 1.0),
        ("def shift(xs): return tuple(x * 0.33333333 for x in xs)", 1.0),
        ("def shift(xs): return [x / 3 for x in xs]", 0.0),
        ("def shift(xs): return tuple(x / 3.1 for x in xs)", 0.0),
        ("def shift(xs):\n    class All:\n        __eq__ = lambda self, other: True\n    return All()", 0.0),
        ("def shift(xs): raise ValueError", 0.0),
    ],
)
def test_a_reference_gives_the_expected_values(verifier: CodeVerifier, program: str, score: float) -> None:
    row = plus("    return tuple(x / 3 for x in xs)\n", [[[1, 2.5]], [[]]], atol=1e-6)
    assert verifier.verify(program, row).score == score
    assert "0.8333" not in verifier.compile(row).inputs


def test_a_reference_that_fails_is_the_fault_of_the_row(verifier: CodeVerifier) -> None:
    for body in ("    return xs[0]\n", "    return object()\n", "    import os\n    os._exit(0)\n"):
        verdict = verifier.verify("def shift(xs): return 1", plus(body, [[[1]], [[]]], atol=0))
        assert (verdict.score, verdict.reason) == (None, "tests_broken")
