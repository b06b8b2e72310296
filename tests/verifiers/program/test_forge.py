"""Programs that attack the test program they are judged by: forged answers, raw messages, state, steps of a lane."""

from __future__ import annotations

import ast
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from grpo_verifiers import BadGold, Sample
from grpo_verifiers.processes import wire
from grpo_verifiers.program import CodeVerifier
from grpo_verifiers.sandbox import tiers
from grpo_verifiers.sandbox.inside.wall import plan
from grpo_verifiers.sandbox.lane import Lane, LaneFailed
from tests.builders.code_verifiers import in_tier

LOOP_ROW = {
    "entry_point": "double",
    "tests": "def check(candidate):\n    for i in range(3):\n        for x in list(zip([i], [i])):\n"
    "            assert candidate(x[0]) == 2 * x[1]\n    assert len(set([candidate(4), 8])) == 1\n",
}
HONEST = "def double(x):\n    return x * 2\n"
NAMES = (
    "range",
    "zip",
    "enumerate",
    "list",
    "set",
    "len",
    "isinstance",
    "abs",
    "all",
    "print",
    "candidate",
    "__builtins__",
)
FORGE = """
import json, os, struct
def say(message):
    data = json.dumps(message).encode()
    os.write(3, struct.pack("<I", len(data)) + data)
{what}
def double(x):
    return x
"""
STATE = """
import builtins, math, sys, os, random
math.floor = lambda x: 0
builtins.range = lambda *a: []
sys.setrecursionlimit(50)
random.seed = lambda *a: None
open("/tmp/left", "w").write("x") if os.access("/tmp", os.W_OK) else None
def double(x):
    raise SystemExit
"""


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def verifier(request: pytest.FixtureRequest) -> Iterator[CodeVerifier]:
    made = in_tier(request.param)
    yield made
    made.close()


def forged(name: str) -> list[str]:
    """Programs that answer the question for names with one more, before it is asked, in each shape of an answer."""
    return [
        FORGE.format(what=f'say(["ok", {shape}])')
        for shape in (
            f'[["{name}", 0], ["double", 0]]',
            f'{{"d": [["{name}", 0]]}}',
            f'[[0], ["{name}"]]',
            "[[0]]",
            "[]",
        )
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_answer_binds_no_name_of_the_test_program(verifier: CodeVerifier, name: str) -> None:
    for program in forged(name):
        verdict = verifier.verify(program, LOOP_ROW)
        assert verdict.score == 0.0, (program, verdict)


def test_what_an_attack_leaves_is_gone_for_the_next_sample(verifier: CodeVerifier) -> None:
    attacks = [
        STATE,
        *(p for n in NAMES for p in forged(n)),
        FORGE.format(what="os._exit(0)"),
        "def double(x): double(x)",
    ]
    gold = verifier.compile(LOOP_ROW)
    patching = verifier.compile(
        {"entry_point": "double", "tests": "import math\nmath.__dict__['floor'] = lambda x: 7\nassert double(1) == 2"}
    )
    for attack in attacks:
        first, second = verifier.judge([Sample(attack, patching), Sample(HONEST, gold)])
        assert first.score == 0.0, (attack, first)
        assert second.score == 1.0, (attack, second)
    after = {
        "entry_point": "double",
        "tests": "import math\nxs = [1.5]\nassert math.floor(xs[0]) == 1 and double(1) == 2",
    }
    assert verifier.verify(HONEST, after).score == 1.0


SINGLETON = """
class Point:
    made = None
    def __new__(cls, *args):
        if cls.made is None:
            cls.made = object.__new__(cls)
        return cls.made
    def __init__(self, *args):
        pass
    def __eq__(self, other):
        return True
def f(x):
    return Point()
"""
LIAR = """
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    y: int
    {body}
def f(x):
    return Point(0, 0)
"""


@pytest.mark.parametrize(
    "program",
    [
        SINGLETON,
        LIAR.format(body="def __post_init__(self): self.x = self.y = 0"),
        LIAR.format(body="def __eq__(self, other): return True"),
        LIAR.format(body="def __setattr__(self, name, value): object.__setattr__(self, name, 0)"),
        "class f:\n    def __init__(self, x): pass\n    def __sub__(self, o): return 0\n    def __eq__(self, o): return True\nPoint = f",
    ],
)
def test_objects_of_the_solution_are_not_equal_on_its_word(verifier: CodeVerifier, program: str) -> None:
    row = {"entry_point": "f", "tests": "r = f(3)\nassert r == Point(1, 2)"}
    verdict = verifier.verify(program, row)
    # the row leans on `==` of a class, for it has made one of the objects; one that does not hold what it was made of may
    # be honest (a fraction in lowest terms) and is not paid
    leans = "@dataclass" in program or "made = None" in program
    assert verdict.score == (None if leans else 0.0), verdict


def test_an_operator_with_a_value_of_the_test_is_no_number(verifier: CodeVerifier) -> None:
    program = "class N:\n    def __sub__(self, o): return 0.0\n    def __abs__(self): return 0.0\ndef f(x): return N()"
    verdict = verifier.verify(program, {"entry_point": "f", "tests": "x = 3\nassert abs(f(x) - 9.5) < 1e-6"})
    assert (verdict.score, verdict.reason) == (0.0, "test_failed")


@pytest.mark.parametrize(
    "tests",
    [
        "def helper():\n    assert f(1) == 1",
        "if False:\n    assert f(1) == 1",
        "if __name__ == 'other':\n    assert f(1) == 1",
        "checks = [lambda: f(1) == 1]\nassert_ = 1",
        "class Outer:\n    class TestInner:\n        def test_a(self):\n            assert f(1) == 1",
    ],
)
def test_tests_that_nobody_runs_are_a_bad_row(verifier: CodeVerifier, tests: str) -> None:
    with pytest.raises(BadGold, match=r"never run|asserts nothing"):
        verifier.compile({"entry_point": "f", "tests": tests})


@pytest.mark.parametrize(
    "tests",
    [
        "class TestF:\n    def test_a(self):\n        assert f(2) == 4",
        "def test_f():\n    assert f(2) == 4",
        "import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(2), 4)",
        "import pytest\n@pytest.mark.parametrize('x,y', [(2, 4), (3, 6)])\ndef test_f(x, y):\n    assert f(x) == y",
        "import pytest\n@pytest.mark.parametrize('x', [f(1)])\n@pytest.mark.parametrize('y', [4])\ndef test_f(x, y):\n    assert f(x) == y",
        "class TestF:\n    def setup_method(self):\n        self.x = f(1)\n    def test_a(self):\n        assert f(self.x) == 4",
        "def verify():\n    assert f(2) == 4\nverify()",
    ],
)
def test_tests_are_run_as_pytest_and_unittest_would(verifier: CodeVerifier, tests: str) -> None:
    row = {"entry_point": "f", "tests": tests}
    assert verifier.verify("def f(x):\n    return x * 2\n", row).score == 1.0
    assert verifier.verify("def f(x):\n    return 0\n", row).score == 0.0


@pytest.mark.parametrize("name", ["sqrt", "deepcopy", "max", "sum", "gcd", "Counter", "isclose", "merge", "sorted"])
def test_an_entry_point_with_a_name_of_the_library_is_the_solutions(verifier: CodeVerifier, name: str) -> None:
    row = {
        "entry_point": name,
        "tests": f"x = 3\nassert {name}(x) == 'mine'",
        "setup": "from math import *\nfrom heapq import merge\n",
    }
    assert verifier.verify(f"def {name}(x):\n    return 'mine'\n", row).score == 1.0
    method = {**row, "tests": [{"args": [3], "expected": "mine"}], "style": "function_call"}
    program = f"class Solution:\n    def {name}(self, x):\n        return 'mine'\n"
    assert verifier.verify(program, method).score == 1.0
    assert verifier.verify(program.replace("'mine'", "0"), method).score == 0.0


def test_a_lane_that_is_out_of_step_is_closed() -> None:
    lane = Lane("namespaces" if isinstance(tiers.try_tier("namespaces"), tiers.Tier) else "landlock")
    lane._asked = 7  # an answer to another request than this side's last one
    with pytest.raises(LaneFailed, match="out of step"):
        _skew(lane)
    assert not lane.is_open


def _skew(lane: Lane) -> None:
    ours, theirs = socket.socketpair()
    lane._channel.close()
    lane._channel = wire.Channel(ours)
    wire.send(theirs, json.dumps({"id": 6, "status": 0}).encode())
    try:
        lane.receive(1.0)
    finally:
        theirs.close()


def test_an_interrupt_in_a_run_leaves_no_lane_behind(verifier: CodeVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    gold = verifier.compile(LOOP_ROW)
    real = Lane.receive

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(Lane, "receive", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(Lane, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verifier.judge([Sample(FORGE.format(what=""), gold)])
    assert verifier.judge([Sample(HONEST, gold)])[0].score == 1.0


POINT = "class Point:\n    def __init__(self, x): self.x = x\n    def norm(self): return abs(self.x)\n"


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    p = Point(x)\n    p.norm = lambda: 7\n    return p",
        "def f(x):\n    p = Point(x)\n    p.__dict__['norm'] = 7\n    return p",
        "def f(x):\n    p = Point(x)\n    p.__class__ = type('Point', (), {'norm': lambda s: 7, 'x': x})\n    return p",
    ],
)
def test_attributes_hide_no_method_of_the_prompts_class(verifier: CodeVerifier, code: str) -> None:
    row: dict[str, object] = {"prompt_code": POINT + "def f(x):\n    'A point.'\n", "entry_point": "f"}
    row["tests"] = ["p = f(3)\nassert isinstance(p, Point) and p.norm() == 7"]
    assert verifier.verify(POINT + code, row).score == 0.0
    row["tests"] = ["p = f(-7)\nassert p.norm() == 7 and p.x == -7"]
    assert verifier.verify(POINT + "def f(x): return Point(x)", row).score == 1.0


@pytest.mark.parametrize("kind", ["Iterator", "Iterable", "Sized", "Callable", "Container"])
def test_an_object_of_the_solution_can_do_no_more_than_its_class(verifier: CodeVerifier, kind: str) -> None:
    row = {"entry_point": "f", "tests": [f"from collections.abc import *\nassert isinstance(f(), {kind})"]}
    assert verifier.verify("class Own: pass\ndef f(): return Own()", row).score == 0.0


def test_the_first_test_that_fails_ends_the_run(verifier: CodeVerifier) -> None:
    slow = "import time\ndef f(x):\n    time.sleep(0.4)\n    return x"
    started = time.monotonic()
    row = {"entry_point": "f", "tests": [f"assert f({n}) == {n + 1}" for n in range(20)]}
    assert verifier.verify(slow, row).score == 0.0
    assert time.monotonic() - started < 6.0  # all of them sleep for 8 seconds


def test_a_fraction_that_costs_seconds_is_no_value(verifier: CodeVerifier) -> None:
    code = "from fractions import Fraction\ndef f(x):\n    r = Fraction(1)\n    r._numerator, r._denominator = 3 ** 900000, 2 ** 1400000\n    return r"
    row = {"entry_point": "f", "tests": ["assert f(1) == 3"]}
    assert verifier.verify(code, row).score == 0.0  # the first judgement starts lanes
    started = time.process_time()
    assert verifier.verify(code, row).score == 0.0
    assert time.process_time() - started < 1.0


LEAVES = (
    "import os\nassert f(1)",
    "import unittest.mock\nassert f(1)",
    "import math\nmath.floor = f\nassert f(1)",
    "import math\nmath.__dict__['floor'] = f\nassert f(1)",
    "import copy\ncopy._deepcopy_dispatch[int] = f\nassert f(1)",
    "from json import JSONEncoder\nJSONEncoder.default = f\nassert f(1)",
    "import unittest\nunittest.TestCase.maxDiff = None\nassert f(1)",
    "import math\ndel math.floor\nassert f(1)",
    "from collections.abc import Sequence\nSequence.register(f)\nassert f(1)",
    "exec('import os')\nassert f(1)",
    "try:\n    assert f(1)\nexcept:\n    assert f(2)",
    "import copy\ncopy._deepcopy_dispatch.update({int: f})\nassert f(1)",
    "import copy\ngetattr(copy, '_deepcopy_dispatch').update({int: f})\nassert f(1)",
    "print(().__class__)\nassert f(1)",
    "with open('a') as file:\n    assert f(file)",
)
LEAVES_NOTHING = (
    "import math\nx = [1]\nx[0] = math.floor(2.5)\nassert f(x) == 2",
    "import unittest\nclass TestF(unittest.TestCase):\n    def setUp(self):\n        self.x = f(1)\n    def test_a(self):\n        self.assertEqual(f(self.x), 4)",
    "account = f(1)\naccount.balance = 5\ngrid = [[0]]\ngrid[0][0] = 1\nassert f(account) == grid",
)


@pytest.mark.parametrize(("tests", "is_left"), [*((t, True) for t in LEAVES), *((t, False) for t in LEAVES_NOTHING)])
def test_only_a_program_that_leaves_nothing_is_run_without_a_process_of_its_own(tests: str, is_left: bool) -> None:
    assert plan.is_plain(ast.parse(tests)) is not is_left


def test_a_trial_that_ends_in_the_middle_leaves_the_next_one_alone(verifier: CodeVerifier) -> None:
    row = {
        "entry_point": "f",
        "tests": "xs = []\nfor n in range(3):\n    xs.append(f(n))\nassert sum(xs) == 6",
        "timeout": 0.5,
    }
    good = verifier.compile(row)
    loop = verifier.compile({**row, "tests": "while f(1) != 0:\n    pass\nassert f(2) == 4"})
    for code, gold, score in (
        ("def f(n): return 2 * n", good, 1.0),
        ("import os\ndef f(n): os._exit(0)", good, 0.0),
        ("def f(n): return 10 ** 5000000", good, 0.0),
        ("def f(n):\n    x = []\n    for _ in range(5000): x = [x]\n    return x", good, 0.0),
        ("def f(n): return 1", loop, 0.0),
        ("def f(n): return 2 * n", good, 1.0),
    ):
        assert verifier.judge([Sample(code, gold)])[0].score == score, code
