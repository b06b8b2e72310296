"""Rows as HumanEval, MBPP, APPS and LiveCodeBench store them."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_verifiers import BadGold, Sample, build
from grpo_verifiers.program import CodeOptions, CodeVerifier, code_row
from grpo_verifiers.sandbox.view import host_view

HUMANEVAL = {
    "task_id": "HumanEval/x",
    "prompt": "from typing import List\n\ndef total(xs: List[int]) -> int:\n    '''Sum.'''\n",
    "canonical_solution": "    return sum(xs)\n",
    "test": "\n\nMETADATA = {'author': 'x'}\n\ndef check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n",
    "entry_point": "total",
}
MBPP = {
    "task_id": 1,
    "text": "Write a function to find the root.",
    "code": "import math\r\ndef root(x):\r\n  return math.sqrt(x)",
    "test_list": ["assert root(4) == 2.0", "assert math.isclose(root(2), 1.41421356, abs_tol=1e-6)"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
APPS_IO = {
    "input_output": json.dumps({"inputs": ["3\n1 2 3\n"], "outputs": ["6\n"]}),
    "solutions": json.dumps(["input()\nprint(sum(map(int, input().split())))"]),
}
APPS_FN = {
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}),
    "solutions": json.dumps(["class Solution:\n    def add(self, a: int, b: int) -> List[int]:\n        return a + b"]),
}
CASES = [{"input": "4\n", "output": "8\n", "testtype": "stdin"}]
PACKED = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(CASES)))).decode()
LCB_IO = {
    "question_content": "q",
    "public_test_cases": json.dumps(CASES),
    "private_test_cases": PACKED,
    "metadata": "{}",
}
LCB_FN = {
    "public_test_cases": json.dumps([{"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional"}]),
    "private_test_cases": "",
    "metadata": json.dumps({"func_name": "shift"}),
}


@pytest.fixture(scope="module")
def code() -> Iterator[CodeVerifier]:
    verifier = CodeVerifier(CodeOptions(lanes=1))
    yield verifier
    verifier.close()


@pytest.mark.parametrize("row", [HUMANEVAL, MBPP, APPS_IO, APPS_FN])
def test_the_reference_solution_of_a_row_passes(code: CodeVerifier, row: dict[str, Any]) -> None:
    gold = code.gold_text(row)
    assert gold is not None
    assert code.verify(gold, row).outcome == "right"
    assert code.verify("```python\ndef total(x): pass\n```", row).score == 0.0


def test_a_humaneval_body_continues_the_prompt(code: CodeVerifier) -> None:
    assert code.verify(HUMANEVAL["canonical_solution"], HUMANEVAL).outcome == "right"
    assert code.verify("    return 0\n", HUMANEVAL).outcome == "wrong"
    assert code.verify("def total(xs: List[int]):\n    return sum(xs)\n", HUMANEVAL).outcome == "right"


def test_livecodebench_rows_are_read(code: CodeVerifier) -> None:
    assert len(code_row(LCB_IO)["tests"]) == 2
    assert code.verify("print(int(input()) * 2)", LCB_IO).outcome == "right"
    method = "class Solution:\n    def shift(self, xs: List[int], by: int) -> List[int]:\n        return [x + by for x in xs]"
    assert code.verify(method, LCB_FN).outcome == "right"
    assert code.verify(method.replace("+", "-"), LCB_FN).outcome == "wrong"


def test_a_pickle_that_names_a_class_is_refused() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (print, ("ran",))

    packed = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(BadGold, match="livecodebench"):
        code_row({**LCB_IO, "private_test_cases": packed})


def test_evalplus_tests_count_beside_the_first_ones(code: CodeVerifier) -> None:
    row = {**MBPP, "test": "inputs = [[9], [16]]\nfor (x,), y in zip(inputs, [3, 4]):\n    assert root(x) == y"}
    lucky = "def root(x):\n    return {4: 2.0, 2: 1.41421356}.get(x, 0)"
    assert code.verify(lucky, MBPP).outcome == "right"
    assert code.verify(lucky, row).outcome == "wrong"
    assert code.verify(MBPP["code"], row).outcome == "right"


@pytest.mark.parametrize("column", ["output_any", "output"])
def test_several_outputs_are_accepted_only_where_they_cannot_be_lines(code: CodeVerifier, column: str) -> None:
    row = {"tests": [{"input": "3", column: ["1 2", "2 1"]}]}
    assert code.verify("print(2, 1)", row).outcome == "right"
    assert code.verify("print(1, 2)", row).outcome == "right"
    assert code.verify("print('1 2\\n2 1')", row).outcome == "wrong"
    lines = {"tests": [{"input": ["3"], column: ["1 2", "2 1"]}]}
    if column == "output":
        with pytest.raises(BadGold, match="outputs of which any is accepted"):
            code.compile(lines)
    else:
        assert code.verify("print(2, 1)", lines).outcome == "right"


CALL = {"input": "[3, 1]\n2", "output": "[5, 3]"}
FUNCTIONAL = {**CALL, "testtype": "functional"}
NAMED = {"type": "function_call", "fn_name": "shift", "input": [[3, 1], 2], "output": [5, 3]}


@pytest.mark.parametrize(
    "row",
    [
        {"tests": json.dumps([{**FUNCTIONAL, "metadata": {"func_name": "shift"}}] * 2)},
        {"tests": [{**FUNCTIONAL, "metadata": json.dumps({"func_name": "shift"})}]},
        {"tests": [FUNCTIONAL], "metadata": {"func_name": "shift"}},
        {"tests": [FUNCTIONAL], "metadata": json.dumps({"func_name": "shift"})},
        {"tests": [FUNCTIONAL], "entry_point": "Solution().shift"},
        {"tests": [CALL], "fn_name": "shift"},
        {"tests": json.dumps([NAMED])},
        {"tests": [{**NAMED, "output": [[5, 3]]}]},
        {"tests": [{k: v for k, v in NAMED.items() if k != "type"}]},
        {"tests": json.dumps({"fn_name": "shift", "inputs": [[[3, 1], 2]], "outputs": [[5, 3]]})},
        {"tests": {"fn_name": "shift", "inputs": ["[3, 1]\n2"], "outputs": ["[5, 3]"]}},
        {"tests": json.dumps({"functional": "def check(f):\n    assert f([3, 1], 2) == [5, 3]\ncheck(Solution().shift)"})},
        {"answer": [{**FUNCTIONAL, "metadata": {"func_name": "shift"}}]},
        {"public_test_cases": json.dumps([FUNCTIONAL]), "metadata": json.dumps({"func_name": "shift"})},
        {"reward_model": {"ground_truth": json.dumps({"fn_name": "shift", "inputs": ["[3, 1]\n2"], "outputs": ["[5, 3]"]})}},
    ],
)  # fmt: skip
def test_tests_marked_as_calls_are_calls(code: CodeVerifier, row: dict[str, Any]) -> None:
    method = (
        "class Solution:\n    def shift(self, xs: List[int], k: int) -> List[int]:\n        return [x + k for x in xs]"
    )
    assert code.verify(method, row).outcome == "right"
    assert code.verify(method.replace("+", "-"), row).outcome == "wrong"
    assert code.verify("input()\ninput()\nprint([5, 3])", row).score == 0.0


@pytest.mark.parametrize(
    "row",
    [
        {"tests": json.dumps([{"input": "3\n", "output": "5\n", "testtype": "stdin"}]), "metadata": {"func_name": None}},
        {"tests": [{"input": "3\n", "output": "5\n", "type": "stdin_stdout", "fn_name": None}]},
        {"tests": [{"input": "3\n", "output": "5\n", "type": "sample"}], "metadata": "from a book"},
        {"tests": json.dumps({"inputs": ["3\n"], "outputs": ["5\n"]})},
        {"tests": [{**FUNCTIONAL, "input": "3\n", "output": "5\n"}], "style": "stdio"},
    ],
)  # fmt: skip
def test_tests_marked_as_input_and_output_are_not_calls(code: CodeVerifier, row: dict[str, Any]) -> None:
    assert code.verify("print(int(input()) + 2)", row).outcome == "right"
    assert code.verify("print(int(input()))", row).outcome == "wrong"


CASE = {"input": ["2\n"], "output": ["2000000\n"]}
WHOLE = [
    {"public_tests": CASE, "private_tests": {"input": [], "output": []}},
    {"input_output": json.dumps({"inputs": ["2\n"], "outputs": ["2000000\n"]})},
    {"reward_model": {"ground_truth": {"inputs": ["2\n"], "outputs": ["2000000\n"]}}},
    {"tests": {"inputs": ["2\n"], "outputs": ["2000000\n"]}},
    {"tests": [{"input": "2\n", "output": "2000000", "float_tol": 0.5}], "compare": "lenient"},
]


@pytest.mark.parametrize("row", WHOLE, ids=["codecontests", "apps", "verl", "deepcoder", "own"])
def test_a_whole_number_is_met_exactly_in_every_format(code: CodeVerifier, row: dict[str, Any]) -> None:
    assert code.verify("print(int(input()) * 1000000)", row).outcome == "right"
    assert code.verify("print(float(input()) * 1e6)", row).outcome == "right"
    assert code.verify("print(int(input()) * 1000000 + 0.4)", row).outcome == "wrong"


def test_calls_are_no_rows_of_programs_in_other_languages() -> None:
    command = build("command", language="bash")
    assert len(command.compile({"tests": json.dumps([{"input": "3", "output": "5", "testtype": "stdin"}])})) == 1
    with pytest.raises(BadGold, match="of the style function_call"):
        command.compile({"tests": json.dumps([FUNCTIONAL]), "metadata": {"func_name": "shift"}})


def test_the_solution_of_a_marked_row_passes(code: CodeVerifier) -> None:
    answer = "```python\ndef shift(xs, k): return [x + k for x in xs]\n```"
    row = {"tests": [NAMED], "solutions": [answer]}
    assert code.gold_text(row) == answer
    assert code.verify(answer, row).outcome == "right"


def test_tests_under_the_name_answer_are_taken(code: CodeVerifier) -> None:
    assert code.verify("def f(x): return x + 1", {"answer": "assert f(1) == 2"}).outcome == "right"
    assert code.verify("def f(x): return x", {"answer": ["assert f(1) == 2"]}).outcome == "wrong"


@pytest.mark.parametrize(
    "tests",
    [
        ["import math", "assert math.isclose(half(3), 1.5)", "assert half(4) == 2"],
        ["wanted = {3: 1.5, 4: 2}", "assert all(half(x) == y for x, y in wanted.items())"],
        ["def check_it(x, y):\n    assert half(x) == y", "check_it(3, 1.5)", "check_it(4, 2)"],
        ["given = half(3)", "import math", "assert math.isclose(given, 1.5)"],
    ],
)
def test_statements_before_an_assert_of_a_list_are_its_preparation(code: CodeVerifier, tests: list[str]) -> None:
    row = {"tests": tests, "entry_point": "half"}
    assert code.verify("def half(x): return x / 2", row).outcome == "right"
    assert code.verify("def half(x): return x / 3", row).outcome == "wrong"


@pytest.mark.parametrize(
    "row",
    [
        {"tests": ["import nowhere", "assert half(4) == 2"]},
        {"tests": "def test_half():\n    from nowhere.at_all import close\n    assert close(half(4), 2)"},
        {"tests": [{"args": [4], "expected": 2}], "setup": "import nowhere"},
        {"tests": ["assert half(4) == 2"], "prompt_code": "import nowhere as n\ndef half(x):\n    '''Half.'''\n"},
        {"tests": ["assert half(4) == 2"], "setup": "from dateutil import parser"},
    ],
)  # fmt: skip
def test_a_row_that_imports_what_is_not_there_has_no_verdict(code: CodeVerifier, row: dict[str, Any]) -> None:
    for program in ("import nowhere\ndef half(x): return x / 2", "def half(x): return 0"):
        verdict = code.verify(program, {"entry_point": "half", **row})
        assert (verdict.score, verdict.reason) == (None, "no_library"), verdict
        assert "`nowhere`" in verdict.detail or "`dateutil`" in verdict.detail


def test_a_row_may_try_to_import_what_is_not_there(code: CodeVerifier) -> None:
    setup = "try:\n    import nowhere\nexcept ImportError:\n    nowhere = None"
    row = {"entry_point": "half", "setup": setup, "tests": ["assert half(4) == 2 and nowhere is None"]}
    assert code.verify("def half(x): return x / 2", row).score == 1.0
    assert code.verify("import nowhere\ndef half(x): return x / 2", row).score == 0.0


def test_a_program_that_fails_without_a_package_we_offer_has_no_verdict(
    code: CodeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_verifiers.program.verifier.host_view", lambda _: host_view(()))
    row = {"entry_point": "half", "tests": ["assert half(4) == 2"]}
    verdict = code.verify("import sympy\ndef half(x): return 0", row)
    assert (verdict.score, verdict.reason) == (None, "no_library")
    assert verdict.detail == "`sympy` is not installed here"
    tried = "try:\n    import sympy\nexcept ImportError: pass\ndef half(x): return x / 2"
    assert code.verify(tried, row).score == 1.0
    assert code.verify("import nowhere\ndef half(x): return 0", row).score == 0.0


def test_the_function_under_test_is_found_from_the_asserts(code: CodeVerifier) -> None:
    task = code.compile({"tests": ["assert set(similar((3, 4), (4, 5))) == {4}"]})
    assert task.entry == "similar"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "no column holds the tests"),
        ({"tests": []}, "`tests` is empty"),
        ({"tests": ["x = 1"]}, "asserts nothing"),
        ({"tests": ["assert f(1) == 2", "f(3)"]}, "test 1 asserts nothing"),
        ({"tests": ["assert f(1) == 2", "def later():\n    assert f(3) == 4"]}, "test 1 is never run"),
        ({"tests": ["assert f("]}, "no Python"),
        ({"tests": [{"args": [1]}], "entry_point": "f"}, "expected"),
        ({"tests": [{"args": [1], "expected": 1}]}, "entry_point"),
        ({"tests": [{"input": 1, "output": "x"}]}, "as text"),
        ({"tests": [{"input": "1", "output": "x"}], "timeout": -1}, "timeout"),
        ({"tests": [{"input": "1", "output": "x"}], "scoring": "some"}, "scoring"),
        ({"tests": ["assert f(1)"], "style": "doctest"}, "style"),
        ({"tests": ["assert f(1)"], "setup": "import"}, "setup"),
        ({"tests": ["assert f(1)"], "entry_point": "f()"}, "entry_point"),
        ({"input_output": "{not json"}, "apps"),
        ({"tests": [FUNCTIONAL, {**CALL, "testtype": "stdin"}]}, "test 1 reads its input and test 0 is a call"),
        ({"tests": [NAMED, {**NAMED, "fn_name": "turn"}]}, "of which function is not said, or of several"),
        ({"tests": [FUNCTIONAL]}, "of which function is not said"),
        ({"public_test_cases": json.dumps([FUNCTIONAL])}, "of which function is not said"),
        ({"tests": [{**NAMED, "input": "no JSON"}]}, "cannot be read"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(row: dict[str, Any], words: str) -> None:
    with pytest.raises(BadGold, match=words.replace("(", r"\(")):
        CodeVerifier(CodeOptions()).compile(row)


def test_no_expected_value_is_sent_to_a_run() -> None:
    verifier = CodeVerifier(CodeOptions())
    for row in (
        {"tests": [{"args": [1], "expected": "zq-secret"}], "entry_point": "f"},
        {"tests": ["assert f(1) == 'zq-secret'"], "entry_point": "f"},
    ):
        task = verifier.compile(row)
        assert "zq-secret" not in task.inputs + task.before + task.prompt


def test_failed_tests_come_first_next_time(code: CodeVerifier) -> None:
    task = code.compile({"tests": [{"input": str(i), "output": str(i if i < 3 else -1)} for i in range(4)]})
    sample = [(task, "print(input())")]
    for gold, text in sample * 2:
        code.judge([Sample(text, gold)])
    assert code._order(task)[0] == 3
