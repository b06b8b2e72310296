"""What tests and solutions hand each other: results that are arguments, containers that both hold, checks in callbacks."""

from __future__ import annotations

import pytest

from grpo_verifiers.program import CodeVerifier
from tests.builders.code_verifiers import score

CALLBACK = "out = []\ndef cb(x):\n    assert x in (2, 4), x\n    out.append(x)\neach([1, 2], cb)\nassert len(out) == 2"
SWALLOWS = "def each(xs, cb):\n    for v in ({}):\n        try:\n            cb(v)\n        except BaseException:\n            pass\n"


@pytest.mark.parametrize("values", ["9, 2, 2", "2, 2, 9", "9, 2, 9, 4", "2, 9, 2"])
def test_a_check_that_fails_in_a_callback_fails_whatever_passes_behind_it(verifier: CodeVerifier, values: str) -> None:
    assert score(verifier, "each", SWALLOWS.format(values), CALLBACK) == 0.0
    assert score(verifier, "each", "def each(xs, cb):\n    for x in xs: cb(2 * x)\n", CALLBACK) == 1.0


@pytest.mark.parametrize("call", ["with quiet():\n        assert f(x) == y", "each([x], lambda v: check_one(v, y))"])
def test_a_check_of_a_loop_that_is_kept_back_once_fails(verifier: CodeVerifier, call: str) -> None:
    tests = (
        "def check_one(x, y):\n    assert f(x) == y\n"
        f"for x, y in [(1, 2), (2, 4), (3, 6)]:\n    {call}\nassert f(5) == 10"
    )
    code = (
        "import contextlib\ndef quiet(): return contextlib.suppress(BaseException)\n"
        "def each(xs, cb):\n    for x in xs:\n        with quiet(): cb(x)\ndef f(x): return {} if x == 2 else 2 * x\n"
    )
    assert score(verifier, "f", code.format("0"), tests) == 0.0
    assert score(verifier, "f", code.format("4"), tests) == 1.0


def test_a_function_of_the_test_may_be_tried_again(verifier: CodeVerifier) -> None:
    tests = (
        "calls = []\ndef flaky(x):\n    calls.append(x)\n    assert len(calls) >= 3\n    return x\n"
        "assert retry(flaky, 7) == 7\nassert len(calls) == 3"
    )
    code = (
        "def retry(f, x):\n    for i in range(5):\n        try:\n            return f(x)\n"
        "        except AssertionError:\n            pass\n"
    )
    assert score(verifier, "retry", code, tests) == 1.0
    assert score(verifier, "retry", code.replace("range(5)", "range(2)"), tests) == 0.0


SAME = [
    ("xs = [0]", "f(xs) is xs and xs == [0, 5]", "def f(x):\n    x.append(5)\n    return x"),
    ("xs = {'a': 1}", "f(xs) is xs and xs == {'a': 1, 5: 5}", "def f(x):\n    x[5] = 5\n    return x"),
    ("xs = {1}", "f(xs) is xs and xs == {1, 5}", "def f(x):\n    x.add(5)\n    return x"),
    ("xs = [0]", "not (f(x=xs) is not xs) and xs == [0, 5]", "def f(x):\n    x.append(5)\n    return x"),
    ("xs = [0]\nr = f(xs)", "r is xs and r == [0, 5]", "def f(x):\n    x.append(5)\n    return x"),
    ("xs = [3, 1, 2]", "f(xs) is xs and xs == [1, 2, 3]", "def f(x):\n    x.sort()\n    return x"),
]


@pytest.mark.parametrize(("given", "claim", "code"), SAME)
def test_a_changed_argument_that_comes_back_is_the_argument(
    verifier: CodeVerifier, given: str, claim: str, code: str
) -> None:
    tests = f"{given}\nassert {claim}"
    assert score(verifier, "f", code, tests) == 1.0
    assert score(verifier, "f", code.replace("return x", "return type(x)(x)"), tests) == 0.0
    assert score(verifier, "f", code.replace("    return", "    x.clear()\n    return"), tests) == 0.0


def test_an_emptied_argument_that_comes_back_is_not_what_the_test_makes_of_it(verifier: CodeVerifier) -> None:
    code = "def f(x):\n    x.clear()\n    return x\n"
    assert score(verifier, "f", code, "xs = [3, 1, 2]\nassert f(xs) == sorted(xs)") == 0.0
    assert score(verifier, "f", code, "xs = [3, 1, 2]\nassert f(xs) is xs and xs == [1, 2, 3]") == 0.0
    kept = "class Box:\n    def __init__(self, x): self.x = x\n    @property\n    def items(self):\n        {}\n        return self.x\n"
    tests = "xs = [3, 1, 2]\nb = Box(xs)\nassert b.items == sorted(xs)"
    assert score(verifier, "Box", kept.format("self.x.clear()"), tests) == 0.0
    assert score(verifier, "Box", kept.format("self.x = sorted(self.x)"), tests) == 1.0


TRANSACTION = """
from contextlib import contextmanager
@contextmanager
def t(db):
    backup = db.copy()
    try:
        yield db
    except Exception:
        db.clear()
        db.{}(backup)
        raise
"""
HOLDER = """
class t:
    def __init__(self, db): self.db = db
    def __enter__(self):
        self.backup = self.db.copy()
        return self.db
    def __exit__(self, kind, err, trace):
        if kind is not None:
            self.db.clear()
            self.db.{}(self.backup)
"""


@pytest.mark.parametrize("code", [TRANSACTION, HOLDER])
@pytest.mark.parametrize(
    ("db", "way", "first", "second", "after"),
    [
        ("{'a': 1}", "update", "d['a'] = 5", "d['b'] = 2", "{'a': 1, 'b': 2}"),
        ("[1]", "extend", "d.append(5)", "d.append(2)", "[1, 2]"),
        ("{1}", "update", "d.add(5)", "d.add(2)", "{1, 2}"),
    ],
)
def test_what_a_context_gives_is_what_it_was_given(
    verifier: CodeVerifier, code: str, db: str, way: str, first: str, second: str, after: str
) -> None:
    tests = (
        f"db = {db}\ntry:\n    with t(db) as d:\n        assert d is db\n        {first}\n        raise ValueError('no')\n"
        f"except ValueError as e:\n    assert str(e) == 'no'\nassert db == {db}\n"
        f"with t(db) as d:\n    {second}\nassert db == {after}"
    )
    assert score(verifier, "t", code.format(way), tests) == 1.0
    assert score(verifier, "t", code.format(way).replace("backup", "db", 1).replace("db.copy()", "{}", 1), tests) == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        "import pytest\ndef test_it():\n    with pytest.raises(ValueError):\n        f(-1)\n    f(1)",
        "import pytest\nwith pytest.raises(ValueError):\n    f(-1)\nf(1)",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertRaises(ValueError, f, -1)\n        f(1)",
        "import pytest\ntry:\n    f(-1)\nexcept ValueError:\n    pass\nelse:\n    pytest.fail('no')\nf(1)",
    ],
)
def test_that_something_is_raised_is_a_check(verifier: CodeVerifier, tests: str) -> None:
    code = "def f(x):\n    if x < 0:\n        raise ValueError(x)\n"
    assert score(verifier, "f", code, tests) == 1.0
    assert score(verifier, "f", code.replace("x < 0", "x < -5"), tests) == 0.0


SHUFFLES = "import random\ndef draw(n):\n    return [random.randint(0, 9) for _ in range(n)]\n"


def test_a_seed_of_the_test_is_that_of_the_solution(verifier: CodeVerifier) -> None:
    tests = "import random\nrandom.seed(7)\nfound = draw(5)\nrandom.seed(7)\nassert found == [random.randint(0, 9) for _ in range(5)]"
    assert score(verifier, "draw", SHUFFLES, tests) == 1.0
    assert score(verifier, "draw", SHUFFLES.replace("range(n)", "range(n - 1)"), tests) == 0.0


def test_the_chance_of_a_test_that_sets_no_seed_stays_with_it(verifier: CodeVerifier) -> None:
    foresees = "import random\ndef add(x):\n    return x + random.randint(1, 9)\n"
    tests = "import random\nfor _ in range(20):\n    found = add(1)\n    assert found == 1 + random.randint(1, 9)"
    assert score(verifier, "add", foresees, tests) == 0.0


@pytest.mark.parametrize("given", ["'ab' + 'c'", "[1] + [2, 3]", "(1,) + (2, 3)", "b'ab' + b'c'"])
def test_literals_put_together_are_a_plain_call(verifier: CodeVerifier, given: str) -> None:
    row = {"entry_point": "f", "tests": [f"assert f({given}) == 3"]}
    assert verifier.compile(row).calls
    assert verifier.verify("def f(x): return len(x)", row).score == 1.0
    assert verifier.verify("def f(x): return len(x) - 1", row).score == 0.0


OWN_CLASS = "class Own:\n    def __init__(self, x): self.x = x\n"


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        (
            f"{OWN_CLASS}kept = []\ndef f(xs):\n    kept.append(xs)\n    xs.append(Own(3))\n    return len(xs)",
            "xs = []\nassert f(xs) == 1\nassert xs[0].x == 3\nassert f(xs) == 2 and xs[1].x == 3",
        ),
        (
            f"{OWN_CLASS}class Bad(Exception):\n    def __init__(self, x):\n        super().__init__(x)\n        self.own = Own(x)\n"
            "def f(x): raise Bad(Own(x))",
            "try:\n    f(1)\n    assert False\nexcept Exception as err:\n    assert err.args[0].x == 1",
        ),
        (
            f"from dataclasses import dataclass\n{OWN_CLASS}@dataclass\nclass Box:\n    own: object\n"
            "def make(): return Box(None)\ndef f(box):\n    box.own = Own(4)\n    return Own(5)",
            "box = make()\nassert f(box).x == 5\nassert box.own.x == 4",
        ),
    ],
)
def test_a_class_that_was_told_in_a_message_that_was_not_sent_is_told_again(
    verifier: CodeVerifier, code: str, tests: str
) -> None:
    assert score(verifier, "f", code, tests) == 1.0


SPIES = """
import io, sys
class Spy(io.StringIO): pass
spy = Spy()
def f(x):
    sys.stdout = spy
    said = spy.getvalue().split()
    return int(said[-1]) if said else None
class With:
    def __enter__(self): sys.stdout = spy
    def __exit__(self, *e): pass
"""


@pytest.mark.parametrize("before", ["", "with With(): pass\n", "f(1)\nwith With(): f(1)\n"])
def test_what_a_test_prints_outside_of_a_context_is_told_to_nobody(verifier: CodeVerifier, before: str) -> None:
    tests = f"{before}for x in (1, 2, 3):\n    print('expected', 7 * x)\n    assert f(x) == 7 * x"
    assert score(verifier, "f", SPIES, tests) == 0.0
    assert score(verifier, "f", SPIES + "def f(x): return 7 * x\n", tests) == 1.0


LEAVING = "import sys\ndef main(args):\n    if not args:\n        sys.exit(2)\n    return len(args)"
EXPECTED_ENDS = [
    "import pytest\nwith pytest.raises(SystemExit):\n    main([])\nassert main('ab') == 2",
    "try:\n    main([])\n    assert False\nexcept:\n    pass\nassert main('ab') == 2",
    "import contextlib\nwith contextlib.suppress(BaseException):\n    main([])\nassert main('ab') == 2",
    "import pytest\n@pytest.mark.parametrize('end', [SystemExit])\ndef test_end(end):\n"
    "    with pytest.raises(end):\n        main([])",
    "import unittest\nclass T(unittest.TestCase):\n    def test_end(self):\n"
    "        self.assertRaises(SystemExit, lambda: main([]))",
]


@pytest.mark.parametrize("tests", EXPECTED_ENDS)
def test_end_that_the_test_expects_is_passed(verifier: CodeVerifier, tests: str) -> None:
    assert score(verifier, "main", LEAVING, tests) == 1
