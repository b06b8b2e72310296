"""Results that are no plain values and equal one by the `==` of a library's class: as in plain Python, in each way."""

from __future__ import annotations

import pytest

from grpo_verifiers.program import CodeVerifier
from tests.builders.code_verifiers import score

WAYS = {
    "values": "assert f() == {literal}",
    "wall": "def want(): return {literal}\nassert f() == want()",
    "wall, inside a list": "def want(): return {literal}\nr = f()\nassert [r] == [want()]",
}
RESULTS = [
    ("UserDict(a=1)", "{'a': 1}", True),
    ("UserDict(a=1)", "{'a': 2}", False),
    ("UserList([1, 2])", "[1, 2]", True),
    ("UserList([1, 2])", "(1, 2)", False),
    ("UserString('ab')", "'ab'", True),
    ("ChainMap({'a': 1}, {'b': 2})", "{'a': 1, 'b': 2}", True),
    ("types.MappingProxyType({'a': 1})", "{'a': 1}", True),
    ("[UserDict(a=1)]", "[{'a': 1}]", True),
    ("{1: 2}.keys()", "{1}", True),
    ("{1: 2}.items()", "{(1, 2)}", True),
    ("{1: 2}.keys()", "[1]", False),
    ("{1: 2}.values()", "[2]", False),
    ("Decimal('1.5')", "1.5", True),
    ("Fraction(3, 2)", "1.5", True),
    ("IntEnum('E', 'A B').A", "1", True),
    ("Enum('E', 'A B').A", "1", False),
    ("deque([1])", "[1]", False),
    ("array.array('i', [1])", "[1]", False),
    ("types.SimpleNamespace(a=1)", "{'a': 1}", False),
    ("namedtuple('P', 'x y')(1, 2)", "(1, 2)", True),
]
IMPORTS = "import array, types\nfrom collections import *\nfrom decimal import *\nfrom enum import *\nfrom fractions import *\n"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("expression", "literal", "is_equal"), RESULTS)
def test_equal_as_in_python(verifier: CodeVerifier, expression: str, literal: str, is_equal: bool, way: str) -> None:
    code = f"{IMPORTS}def f():\n    return {expression}\n"
    assert score(verifier, "f", code, WAYS[way].format(literal=literal)) == is_equal


@pytest.mark.parametrize(("expression", "literal", "is_equal"), [("Integer(3)", "3", True), ("Integer(3)", "4", False), ("Float('0.5')", "0.5", True), ("Symbol('x')", "3", False)])  # fmt: skip
def test_numbers_of_sympy(verifier: CodeVerifier, expression: str, literal: str, is_equal: bool) -> None:
    pytest.importorskip("sympy")
    code = f"from sympy import *\ndef f():\n    return {expression}\n"
    for tests in WAYS.values():
        assert score(verifier, "f", code, tests.format(literal=literal)) == is_equal


@pytest.mark.parametrize("base", ["UserDict", "UserList", "dict", "object"])
@pytest.mark.parametrize("literal", ["{'a': 1}", "[1]", "3"])
def test_a_class_of_the_solution_does_not_decide(verifier: CodeVerifier, base: str, literal: str) -> None:
    code = (
        f"from collections import *\nclass E({base}):\n    def __eq__(self, other): return True\ndef f(): return E()\n"
    )
    for tests in WAYS.values():
        assert score(verifier, "f", code, tests.format(literal=literal)) == 0.0


def test_what_equality_does_not_show_is_left_to_the_test(verifier: CodeVerifier) -> None:
    code = "from collections import UserDict\ndef f(): return UserDict(a=1)"
    assert score(verifier, "f", code, "assert isinstance(f(), dict)") == 0.0
    assert score(verifier, "f", code, "assert len(f()) == 1") == 1.0
    assert score(verifier, "f", code, "assert f()") == 1.0
