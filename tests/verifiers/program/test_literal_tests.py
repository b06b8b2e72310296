"""Each form of test that is read as calls with literals: a right solution is paid, a wrong one and objects made to please are not."""

from __future__ import annotations

import ast
import datetime
from typing import Any

import pytest

from grpo_verifiers import Sample
from grpo_verifiers.program import CodeVerifier
from grpo_verifiers.program.claims import Claim, Undecided, holds
from grpo_verifiers.program.literal_tests import Reader, literal_calls
from grpo_verifiers.sandbox.inside.wall.values import encode

ADD = "def f(xs, k=1): return [x + k for x in xs]"
OFF = "def f(xs, k=1): return [x + k + 1 for x in xs]"
HALF, OFF_HALF = "def f(x): return x / 2", "def f(x): return x / 3"
SURE = "def f(x):\n    if x < 0: raise ValueError('no')\n    return x"
UNSURE, OTHER = "def f(x): return abs(x)", "def f(x):\n    if x < 0: raise KeyError(x)\n    return x"
OWN = "class Bad(ValueError): pass\ndef f(x):\n    if x < 0: raise Bad(x)\n    return x"
EVEN, ODD = "def f(x): return x % 2 == 0", "def f(x): return x % 2 == 1"
WORDS, FEWER = "def f(s): return s.split()", "def f(s): return s.split()[1:]"

PLUS = """
import numpy as np
from numpy import inf

def is_floats(x) -> bool:
    return isinstance(x, float) or (isinstance(x, (list, tuple)) and all(isinstance(i, float) for i in x))

def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert exact_match

inputs = [[4], [3], [inf]]
results = [2.0, 1.5, inf]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(f(*inp), exp, 0)
"""

FORMS: dict[str, tuple[str, str, str]] = {
    "assert": ("assert f([1, 2], k=3) == [4, 5]", ADD, OFF),
    "turned": ("assert [2, 3] == f([1, 2])", ADD, OFF),
    "check": ("def check(candidate):\n    assert candidate([1]) == [2]\ncheck(f)", ADD, OFF),
    "test function": ("from solution import f\ndef test_a():\n    assert f([1]) == [2]\ndef test_b():\n    xs = [1, 2]\n    got = f(xs)\n    assert got == [2, 3], 'message'\n    assert len(got) == 2", ADD, OFF),
    "other name": ("from solution import f as g\nimport pytest\n\ndef test_a():\n    assert g([1]) == [2]\n\nif __name__ == '__main__':\n    pytest.main()", ADD, OFF),
    "class": ("class TestF:\n    def setup_method(self):\n        self.xs = [1]\n    def test_a(self):\n        assert f(self.xs) == [2]\n    def test_b(self):\n        assert f(self.xs, 2) == [3]", ADD, OFF),
    "constants": ("import math\nBIG = [0] * 3 + list(range(3))\nWANTED = [x + 1 for x in [0, 0, 0, 0, 1, 2]]\ndef test_a():\n    assert f(BIG) == WANTED\n    assert f([math.inf]) == [float('inf')]", ADD, OFF),
    "parametrize": ("import pytest\n@pytest.mark.parametrize('xs, wanted', [([1], [2]), ([], []), ([2, 3], [3, 4])])\ndef test_a(xs, wanted):\n    assert f(xs) == wanted", ADD, OFF),
    "parametrize one": ("import pytest\n@pytest.mark.parametrize(['x'], [(2,), (4,)])\ndef test_a(x):\n    assert f(x) is True", EVEN, ODD),
    "parametrize values": ("import pytest\n@pytest.mark.parametrize('x', [2, 4])\ndef test_a(x):\n    assert f(x) is True", EVEN, ODD),
    "loop": ("def test_a():\n    for x, wanted in [(1, 0.5), (4, 2)]:\n        assert f(x) == wanted", HALF, OFF_HALF),
    "raises": ("import pytest\ndef test_a():\n    with pytest.raises(ValueError):\n        f(-1)\n    assert f(1) == 1", SURE, UNSURE),
    "raises another": ("import pytest\ndef test_a():\n    with pytest.raises((ValueError, TypeError)):\n        f(-1)\n    assert f(1) == 1", SURE, OTHER),
    "raises its own": ("import pytest\ndef test_a():\n    with pytest.raises(ValueError):\n        f(-1)\n    assert f(1) == 1", OWN, OTHER),
    "try": ("def test_a():\n    try:\n        f(-1)\n        assert False, 'no error'\n    except ValueError:\n        pass\n    assert f(1) == 1", SURE, UNSURE),
    "try else": ("def test_a():\n    try:\n        f(-1)\n    except ValueError:\n        assert True\n    else:\n        assert False\n    assert f(1) == 1", SURE, OTHER),
    "unittest": ("import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.xs = [1, 2]\n    def test_a(self):\n        self.assertEqual(f(self.xs), [2, 3])\n        self.assertIn(4, f([3]))\n    def test_b(self):\n        self.assertListEqual(f(self.xs, k=2), [3, 4])", ADD, OFF),
    "unittest raises": ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        with self.assertRaises(ValueError):\n            f(-1)\n        self.assertRaises(ValueError, f, -2)\n        self.assertIsNotNone(f(1))", SURE, UNSURE),
    "unittest truth": ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertTrue(f(2))\n        self.assertFalse(f(3), 'odd')\n        self.assertIs(f(4), True)", EVEN, ODD),
    "unittest close": ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        for x in (1, 2):\n            with self.subTest(x=x):\n                self.assertAlmostEqual(f(x), x * 0.5)\n        self.assertAlmostEqual(f(3), 1.52, delta=0.1)\n        self.assertAlmostEqual(f(3), 1.504, places=2)\n        self.assertGreater(f(4), 1.9)", HALF, OFF_HALF),
    "evalplus": (PLUS, HALF, OFF_HALF),
    "isclose": ("import math\nassert math.isclose(f(1), 0.5, rel_tol=1e-3)\nassert math.isclose(0.5, f(1))", HALF, OFF_HALF),
    "approx": ("import pytest\nfrom pytest import approx\ndef test_a():\n    assert f(1) == pytest.approx(0.5)\n    assert f(3) == approx(1.5004, abs=1e-3)", HALF, OFF_HALF),
    "approx list": ("import pytest\ndef test_a():\n    assert f([0.1, 0.2]) == pytest.approx([1.1, 1.2])", ADD, OFF),
    "gap": ("assert abs(f(1) - 0.5) < 1e-6\nassert abs(f(3) - 1.5) <= 1e-6\nassert round(f(1), 2) == 0.5", HALF, OFF_HALF),
    "order": ("assert 0.4 < f(1) <= 0.5\nassert f(1) > 0.4\nassert 1 >= f(2) >= 1", HALF, OFF_HALF),
    "set": ("assert set(f([1, 2, 1])) == set([2, 3])\nassert len(set(f([1, 1]))) == 1", ADD, OFF),
    "sorted": ("assert sorted(f([2, 1])) == [2, 3]", ADD, OFF),
    "length": ("assert len(f('a b c')) == 3", WORDS, FEWER),
    "member": ("assert 'a' in f('a b')\nassert 'c' not in f('a b')\nassert f('a b') in (['a', 'b'], ['b', 'a'])", WORDS, FEWER),
    "negated": ("assert not f(3)\nassert f(2) is True\nassert f(3) != True and f(2) is not None", EVEN, ODD),
}  # fmt: skip

PLEASING = """
class Pleasing(%s):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = lambda self, *a: True
    __hash__ = lambda self: 0
    __len__ = lambda self: 2
    __iter__ = lambda self: iter([self, self])
    __getitem__ = lambda self, key: self
    __sub__ = __rsub__ = __abs__ = __round__ = __add__ = __radd__ = lambda self, *a: 0
    __instancecheck__ = classmethod(lambda cls, other: True)
    __class__ = property(lambda self: list)
def f(*args, **kwargs): return Pleasing()
"""
ATTACKS = {
    "object": PLEASING % "object",
    "list": PLEASING % "list",
    "float": PLEASING % "float",
    "text": PLEASING % "str",
    "exit": "import os\ndef f(*args, **kwargs): os._exit(0)",
    "left": "def f(*args, **kwargs): raise SystemExit(0)",
    "passes": "def f(*args, **kwargs):\n    import unittest, pytest\n    unittest.TestCase.assertEqual = lambda *a: None\n",
    "written": 'import os\nos.write(3, b\'{"v": "passed"}\\n\' * 9)\ndef f(*args, **kwargs): return None',
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_read_and_judged_as_python_judges_it(verifier: CodeVerifier, name: str) -> None:
    tests, right, wrong = FORMS[name]
    row = {"tests": tests, "entry_point": "f", "style": "assert"}
    task = verifier.compile(row)
    assert task.way == "values"
    verdicts = verifier.judge([Sample(f"```python\n{p}\n```", task) for p in (right, wrong, "def f(*a, **k): pass")])
    assert [v.score for v in verdicts] == [1.0, 0.0, 0.0], verdicts


@pytest.mark.parametrize("name", FORMS)
def test_no_form_pays_what_is_made_to_please(verifier: CodeVerifier, name: str) -> None:
    task = verifier.compile({"tests": FORMS[name][0], "entry_point": "f", "style": "assert"})
    verdicts = verifier.judge([Sample(f"```python\n{program}\n```", task) for program in ATTACKS.values()])
    assert {a: v.reason for a, v in zip(ATTACKS, verdicts, strict=True) if v.score != 0.0} == {}


LEFT_TO_THE_TEST_PROCESS = {
    "handed twice": "def test_a():\n    xs = [1]\n    assert f(xs) == [2]\n    assert f(xs) == [2]",
    "read behind the call": "def test_a():\n    xs = [1]\n    f(xs)\n    assert xs == [1]",
    "read beside the call": "def test_a():\n    xs = [1]\n    assert f(xs) == [x + 1 for x in xs]",
    "read before, changed after": "def test_a():\n    xs = [1]\n    assert xs == f(xs)",
    "part handed over": "def test_a():\n    inner = [1]\n    outer = [inner]\n    f(inner)\n    assert f([2]) == outer",
    "one object twice": "def test_a():\n    xs = [1]\n    assert f([xs, xs]) == []",
    "iterator": "def test_a():\n    assert f(zip([1], [2])) == []",
    "chance": "def test_a():\n    assert f([1]) == list({1, 2})",
    "range is no list": "def test_a():\n    assert f([1]) == range(2)",
    "message of an error": "import pytest\ndef test_a():\n    with pytest.raises(ValueError, match='no'):\n        f(-1)",
    "error that is read": "import pytest\ndef test_a():\n    with pytest.raises(ValueError) as err:\n        f(-1)\n    assert str(err.value) == 'no'",
    "swallowed": "def test_a():\n    try:\n        f(-1)\n        assert False\n    except Exception:\n        pass\n    assert f([1]) == [2]",
    "changed by a later call": "def test_a():\n    first = f([1])\n    second = f([2])\n    assert first == [2]",
    "emptied by a later call": "def test_a():\n    first = f([1])\n    f([2])\n    assert not first",
    "shortened by a later call": "def test_a():\n    first = f([1])\n    f([2])\n    assert len(first) == 1",
    "two results": "def test_a():\n    assert f([1]) == f([1])",
    "second function": "from solution import f, g\ndef test_a():\n    assert f([1]) == g([1])",
    "everything": "from solution import *\ndef test_a():\n    assert f([1]) == [2]",
    "helper": "def same(a, b):\n    return True\ndef test_a():\n    assert same(f([1]), [2])",
    "builtin of its own": "def test_a():\n    len = 3\n    assert f([1]) == [2]",
    "fixture": "import pytest\n@pytest.fixture\ndef xs():\n    return [1]\ndef test_a(xs):\n    assert f(xs) == [2]",
    "skipped": "import pytest\n@pytest.mark.skip\ndef test_a():\n    assert f([1]) == [3]\ndef test_b():\n    assert f([1]) == [2]",
    "tear down": "import unittest\nclass T(unittest.TestCase):\n    def tearDown(self):\n        self.fail()\n    def test_a(self):\n        self.assertEqual(f([1]), [2])",
    "lambda": "def test_a():\n    assert f(lambda x: x) == [2]",
    "condition": "def test_a():\n    if f([1]):\n        assert f([1]) == [2]",
    "too many": "def test_a():\n    for i in range(5000):\n        assert f([i]) == [i + 1]",
    "too long": "def test_a():\n    assert f([0] * 10000000) == []",
    "library": "import requests\ndef test_a():\n    assert f([1]) == [2]",
    "module": "import solution\ndef test_a():\n    assert solution.f([1]) == [2]",
    "unpacked": "def test_a():\n    low, high = f([1, 2])\n    assert low == 2",
    "chance in order": "def test_a():\n    assert f([*{'a', 'b'}]) == []",
    "nothing claimed": "def test_a():\n    f([1])",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_TO_THE_TEST_PROCESS)
def test_what_is_more_than_literals_is_left_to_the_test_process(name: str) -> None:
    assert literal_calls([LEFT_TO_THE_TEST_PROCESS[name]], "f") is None


def test_numbers_and_texts_are_compared_behind_a_later_call() -> None:
    tests = "def test_a():\n    first, second = f(1), f(2)\n    assert second == 'b'\n"
    assert literal_calls([tests], "f") is None
    tests = "def test_a():\n    first = f(1)\n    second = f(2)\n    assert first == 'a' and second == ['b']"
    assert [call.claims for call in literal_calls([tests], "f") or ()] == [
        (Claim("equal", "a"),),
        (Claim("equal", ["b"]),),
    ]


def test_the_last_of_two_functions_of_one_name_is_run() -> None:
    tests = "def test_a():\n    assert f(1) == 2\ndef test_a():\n    assert f(2) == 3"
    assert [(d.args, d.claims) for d in Reader("f").program(ast.parse(tests))] == [((2,), [Claim("equal", 3)])]


ARRAY = {"a": ["<i8", [1], "AQAAAAAAAAA="]}
"""`numpy.array([1])`, as a run sends it."""


def test_values_that_nothing_can_change_are_handed_over_again() -> None:
    tests = "def test_a():\n    word, pair = 'ab', (1, 2)\n    assert f(word, pair) == 1\n    assert f(word, pair) == 1"
    assert len(literal_calls([tests], "f") or ()) == 2


@pytest.mark.parametrize(
    ("expression", "got", "is_held"),
    [
        ("f() == 1", True, True),
        ("f() == [1, (2,)]", [1, {"t": [2]}], True),
        ("f() == [1, (2,)]", [1, [2]], False),
        ("f() == b'a'", {"b": "61"}, True),
        ("f() == b'a'", {"b": "62"}, False),
        ("f() == b''", {"B": ""}, True),
        ("len(f()) == 2", {"d": [[1, 2], [3, 4]]}, True),
        ("len(f()) == 2", "ab", True),
        ("len(f()) == 0", 0, None),
        ("sorted(f()) == [1, 2]", {"s": [2, 1]}, True),
        ("sorted(f()) == [[1], [2]]", [[2], [1]], True),
        ("sorted(f()) == [1, 'a']", [1, "a"], None),
        ("set(f()) == {1, 2}", [1, 2, 2, 1], True),
        ("set(f()) == {1, 2}", [1, 2, 3], False),
        ("set(f()) == {(1, 2)}", [{"t": [1, 2]}, {"t": [1, 2]}], True),
        ("'a' in f()", "cab", True),
        ("1 in f()", "cab", None),
        ("f() in 'cab'", "ab", True),
        ("f() in [1, 2]", 3, False),
        ("f() is None", None, True),
        ("f() is None", 0, False),
        ("f() is not None", 0, True),
        ("f() < 3", 2, True),
        ("f() < 3", "2", None),
        ("f() < 3", None, None),
        ("f() >= 'a'", "b", True),
        ("abs(f() - 3) < 1", 3.5, True),
        ("abs(f() - 3) < 1", {"m": ["3.5"]}, True),
        ("f() - 5 == 2", 3, False),
        ("round(f(), 1) == 0.3", 0.30000000000000004, True),
        ("not f()", {"t": []}, True),
        ("not f()", [0], False),
        ("f()", {"i": "0x0"}, False),
        ("f()", encode(datetime.timedelta(0)), False),
    ],
)
def test_a_claim_looks_at_the_tagged_value_as_python_does(expression: str, got: Any, is_held: bool | None) -> None:
    (draft,) = Reader("f").program(ast.parse(f"assert {expression}"))
    if is_held is None:
        with pytest.raises((ValueError, TypeError, LookupError)):
            [holds(claim, got) for claim in draft.claims]
    else:
        assert [holds(claim, got) for claim in draft.claims] == [is_held]


@pytest.mark.parametrize(
    ("expression", "got"),
    [
        ("sorted(f()) == [{1}]", [{"s": [1]}]),
        ("len(set(f())) == 1", [1.0, 1]),
        ("len(f()) == 1", ARRAY),
        ("f() == [1]", ARRAY),
        ("f() != [1]", ARRAY),
        ("f()", ARRAY),
        ("len(f()) == 3", {"r": [0, 10**15, 1]}),
    ],
)
def test_what_a_tagged_value_does_not_show_is_undecided(expression: str, got: Any) -> None:
    (draft,) = Reader("f").program(ast.parse(f"assert {expression}"))
    with pytest.raises(Undecided):
        [holds(claim, got) for claim in draft.claims]


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        ("assert sorted(f([2, 1])) == [1, 2]", "def f(xs): return iter(xs)"),
        ("assert set(f({'a': 1})) == {'a'}", "def f(d): return d.keys()"),
        ("assert 2 in f([2, 1])", "def f(xs): return map(abs, xs)"),
        ("assert f(1) is not None", "def f(x): return object()"),
        ("assert f(1)", "def f(x): return object()"),
    ],
)
def test_an_object_that_python_would_take_is_taken(verifier: CodeVerifier, tests: str, program: str) -> None:
    row = {"tests": tests, "entry_point": "f", "style": "assert"}
    assert verifier.compile(row).way == "values"
    assert verifier.verify(program, row).outcome == "right"


@pytest.mark.parametrize(
    ("check", "score"), [("f(1) != [1]", 0.0), ("f(1)", 1.0), ("not f(1)", 0.0), ("f(1) == [1]", 1.0)]
)
def test_an_array_compares_item_by_item(verifier: CodeVerifier, check: str, score: float) -> None:
    pytest.importorskip("numpy")
    row = {"tests": f"assert {check}", "entry_point": "f", "style": "assert", "setup": "import numpy as np"}
    assert verifier.verify("def f(x): return np.array([x])", row).score == score


def test_a_long_result_of_which_little_is_claimed_is_read_whole(verifier: CodeVerifier) -> None:
    row = {"tests": "assert len(f(400000)) == 400000", "entry_point": "f", "style": "assert"}
    assert verifier.verify("def f(n): return list(range(n))", row).outcome == "right"
    assert verifier.verify("def f(n): return list(range(n + 1))", row).score == 0.0
