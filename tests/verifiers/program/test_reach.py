"""Which test programs decide nothing: no check of theirs is run, or none that is run can fail. Such a row is named, never judged."""

from __future__ import annotations

import pytest

from grpo_verifiers import BadGold
from grpo_verifiers.program import CodeVerifier

CASE = "import unittest\nclass T(unittest.TestCase):\n    "

NOT_RUN = [
    CASE + "def check_a(self):\n        self.assertEqual(f(1), 2)\nunittest.main()",
    CASE + "def setUp(self):\n        self.assertEqual(f(1), 2)",
    CASE + "pass\nunittest.main()",
    CASE + "@unittest.skip('later')\n    def test_a(self):\n        self.assertEqual(f(1), 2)",
    CASE.replace("class", "@unittest.skip('later')\nclass") + "def test_a(self):\n        self.assertEqual(f(1), 2)",
    CASE + "def test_a(self):\n        def inner():\n            self.assertEqual(f(1), 2)",
    CASE + "def test_a(self):\n        f(1)",
    "def test_a():\n    def inner():\n        assert f(1) == 2",
    "def test_a():\n    assert f(1) == 2\n    yield",
    "async def test_a():\n    assert f(1) == 2",
    "import pytest\n@pytest.mark.skip(reason='later')\ndef test_a():\n    assert f(1) == 2",
    "class TestA:\n    def check_a(self):\n        assert f(1) == 2",
    "class Other:\n    def test_a(self):\n        assert f(1) == 2",
    "def test_a():\n    return f(1) == 2",
    "import sys\nf(1)\nsys.exit(0)",
]
CANNOT_FAIL = [
    CASE + "def test_a(self):\n        self.assertTrue(True)\n        self.assertEqual(1, 1)",
    CASE + "def test_a(self):\n        self.assertTrue(f)\n        self.assertIsNotNone(f)",
    "check = lambda c: c(1) == 2\nassert check",
    "check = lambda c: c(1) == 2\nassert check, 'it differs'",
    "def same(): return f(1) == 2\nassert same",
    "def same():\n    assert f(1) == 2\nassert same",
    "assert (f(1) == 2, 'it differs')",
    "assert [f(x) == x + 1 for x in (1, 2)]",
    "assert (f(x) == x + 1 for x in (1, 2))",
    "assert f",
    "def check(candidate):\n    assert candidate is not None and callable(candidate)",
    "def check(function):\n    assert function",
    "assert 1 == 1",
    "assert not False",
    "assert f(1) == 2 or True",
    "assert 'f(1) == 2'",
    "assert lambda: f(1) == 2",
    "def check(candidate):\n    try:\n        assert candidate(1) == 2\n    except:\n        pass",
    "def check(candidate):\n    try:\n        assert candidate(1) == 2\n    except (ValueError, AssertionError) as err:\n        print(err)",
]
DECIDING = [
    CASE + "def test_a(self):\n        self.check_a()\n    def check_a(self):\n        self.assertEqual(f(1), 2)\nunittest.main()",
    CASE + "def runTest(self):\n        self.assertEqual(f(1), 2)",
    CASE + "def setUp(self):\n        self.assertEqual(f(1), 2)\n    def test_a(self): pass",
    CASE + "@unittest.skipIf(False, 'never')\n    def test_a(self):\n        self.assertEqual(f(1), 2)",
    CASE + "def check_a(self):\n        self.assertEqual(f(1), 2)\nsuite = unittest.TestSuite()\nsuite.addTest(T('check_a'))\nassert unittest.TextTestRunner().run(suite).wasSuccessful()",
    "import unittest\nclass Base:\n    def test_a(self):\n        self.assertEqual(f(1), 2)\nclass T(Base, unittest.TestCase): pass",
    "import unittest\nclass T(unittest.TestCase): pass\ndef make(x):\n    return lambda self: self.assertEqual(f(x), x + 1)\nfor i in (1, 2):\n    setattr(T, f'test_{i}', make(i))",
    "check = lambda c: c(1) == 2\nassert check(f)",
    "same = lambda a, b: a == b\nassert same(f(1), 2)",
    "assert [x for x in [f(1)] if x == 2]",
    "ok = f(1) == 2\nassert ok",
    "assert (f(1) == 2), 'it differs'",
    "def helper(candidate):\n    assert candidate\nhelper(f(1) == 2)",
    "def check(candidate):\n    try:\n        candidate('a')\n        raise ValueError\n    except TypeError:\n        pass\n    assert candidate(1) == 2",
    "def check(candidate):\n    n = 0\n    try:\n        assert candidate(1) == 2\n        n += 1\n    except AssertionError:\n        pass\n    assert n == 1",
    "def test_a():\n    def inner():\n        assert f(1) == 2\n    inner()",
    "def case_a():\n    assert f(1) == 2\nfor name, case in list(globals().items()):\n    if name.startswith('case_'): case()",
    "cases = []\ndef register(case):\n    cases.append(case)\n    return case\n@register\ndef case_a():\n    assert f(1) == 2\nfor case in cases: case()",
    "class Runner:\n    def __init__(self):\n        assert f(1) == 2\nRunner()",
    "class Runner:\n    def run(self):\n        assert f(1) == 2\nRunner().run()",
    "import pytest\n@pytest.mark.parametrize('g', [f])\ndef test_a(g):\n    assert g(1) == 2",
    "import sys\nsys.exit(f(1) != 2)",
    "if True:\n    def test_a():\n        assert f(1) == 2",
]  # fmt: skip


@pytest.mark.parametrize("tests", NOT_RUN + CANNOT_FAIL)
def test_a_program_that_decides_nothing_is_a_bad_row(verifier: CodeVerifier, tests: str) -> None:
    with pytest.raises(BadGold, match=r"never run, or cannot fail|asserts nothing"):
        verifier.compile({"entry_point": "f", "tests": tests})


@pytest.mark.parametrize("tests", DECIDING)
def test_a_program_that_decides_pays_the_right_one_alone(verifier: CodeVerifier, tests: str) -> None:
    row = {"entry_point": "f", "tests": tests}
    assert verifier.verify("def f(x): return x + 1", row).score == 1.0
    assert verifier.verify("def f(x): return 0", row).score == 0.0


def test_test_cases_that_turn_out_empty_are_no_verdict(verifier: CodeVerifier) -> None:
    tests = "import unittest\nclass T(unittest.TestCase): pass\nfor i in ():\n    setattr(T, 'test_a', lambda self: self.assertEqual(f(1), i))"
    for program in ("def f(x): return x + 1", "def f(x): return 0"):
        verdict = verifier.verify(program, {"entry_point": "f", "tests": tests})
        assert (verdict.score, verdict.reason) == (None, "tests_broken")
