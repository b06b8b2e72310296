"""Test programs that the wall does not carry: no verdict, with what it is, whatever the solution does.

Which programs these are is known from the test alone. A solution that is wrong, or leaves, gets no other answer.
"""

from __future__ import annotations

import ast

import pytest

from grpo_verifiers.program import CodeVerifier
from grpo_verifiers.sandbox.inside.wall.plan import is_plain
from tests.builders.code_verifiers import score

BUFFER = """
import threading
class Buffer:
    def __init__(self, size):
        self.items, self.size, self.ready = [], size, threading.Condition()
    def put(self, item):
        with self.ready:
            self.ready.wait_for(lambda: len(self.items) < self.size)
            self.items.append(item)
            self.ready.notify_all()
    def get(self):
        with self.ready:
            self.ready.wait_for(lambda: self.items)
            item = self.items.pop(0)
            self.ready.notify_all()
            return item
"""
EXCHANGED = """
import threading, time
buffer, got = Buffer(1), []
def produce():
    for i in range(6):
        time.sleep(0.01)
        buffer.put(i)
def consume():
    for _ in range(6):
        got.append(buffer.get())
threads = [threading.Thread(target=consume), threading.Thread(target=produce)]
[t.start() for t in threads]
[t.join() for t in threads]
assert got == [0, 1, 2, 3, 4, 5]
"""
MEETING = """
import threading
class Meeting:
    def __init__(self, n):
        self.barrier = threading.Barrier(n)
    def meet(self):
        return self.barrier.wait(1)
"""
MET = """
import threading
meeting, places = Meeting(3), []
threads = [threading.Thread(target=lambda: places.append(meeting.meet())) for _ in range(2)]
[t.start() for t in threads]
places.append(meeting.meet())
[t.join() for t in threads]
assert sorted(places) == [0, 1, 2]
"""
LATER = "import threading\ndef later(s, f):\n    t = threading.Timer(s, f)\n    t.start()\n    return t\n"
CALLED = "import time\ncalled = []\nlater(0.15, lambda: called.append(1))\nassert called == []\ntime.sleep(0.6)\nassert called == [1]"
LAZY = """
import threading
class Lazy:
    def __init__(self, make):
        self.make, self.lock, self.made = make, threading.Lock(), None
    def get(self):
        with self.lock:
            if self.made is None:
                self.made = [self.make()]
            return self.made[0]
"""
ONCE = """
import threading, time
calls, got = [], []
def make():
    calls.append(1)
    time.sleep(0.02)
    return len(calls)
lazy = Lazy(make)
threads = [threading.Thread(target=lambda: got.append(lazy.get())) for _ in range(5)]
[t.start() for t in threads]
[t.join() for t in threads]
assert got == [1] * 5 and calls == [1]
"""
SPREAD = """
import threading
def spread(f, xs):
    out = [None] * len(xs)
    def work(i):
        out[i] = f(xs[i])
    threads = [threading.Thread(target=work, args=(i,), name=f'w{i}') for i in range(len(xs))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out
"""
OWN_THREADS = """
import threading
together, seen, own = threading.Barrier(3), set(), threading.local()
def twice(x):
    own.x = x
    together.wait(1)
    seen.add((threading.get_ident(), threading.current_thread().name))
    return 2 * own.x
assert spread(twice, [1, 2, 3]) == [2, 4, 6]
assert {name for _, name in seen} == {'w0', 'w1', 'w2'} and len({i for i, _ in seen}) == 3
assert threading.get_ident() not in {i for i, _ in seen}
"""
OWN_LOCAL = "import threading\nclass Own:\n    def __init__(self): self.local = threading.local()\n    def put(self, x): self.local.x = x\n    def get(self): return getattr(self.local, 'x', None)\n"
LOCAL = """
import threading
own, got = Own(), {}
def work(i):
    own.put(i)
    together.wait(1)
    got[i] = own.get()
together = threading.Barrier(4)
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert got == {i: i for i in range(4)} and own.get() is None
"""
COUNTER = "import threading\nclass Counter:\n    def __init__(self): self.n, self.lock = 0, threading.Lock()\n    def add(self):\n        with self.lock: self.n += 1\n"
MANY = """
import threading
counter = Counter()
threads = [threading.Thread(target=lambda: [counter.add() for _ in range(5)]) for _ in range(100)]
[t.start() for t in threads]
[t.join() for t in threads]
assert counter.n == 500
"""
NESTED = """
import threading
def both(f, g):
    t = threading.Thread(target=f)
    t.start()
    g()
    t.join()
"""
CROSSED = """
import threading
first, second, log = threading.Event(), threading.Event(), []
def f():
    log.append('f')
    first.set()
    assert second.wait(1)
    log.append('f again')
def g():
    assert first.wait(1)
    log.append('g')
    second.set()
both(f, g)
assert log in (['f', 'g', 'f again'], ['f', 'f again', 'g'])
"""
FILLS = "import threading, time\ndef fill(xs):\n    def work():\n        time.sleep(0.02)\n        xs.append(1)\n    threading.Thread(target=work).start()\n"
FILLED = "import time\nxs = []\nfill(xs)\nassert xs == []\ntime.sleep(0.3)\nassert xs == [1]"
POOL = """
from concurrent.futures import ThreadPoolExecutor
def gather(fs):
    with ThreadPoolExecutor(len(fs)) as pool:
        return [t.result() for t in [pool.submit(f) for f in fs]]
"""
GATHERED = """
import threading, time
together = threading.Barrier(4)
def slow(i):
    together.wait(1)
    time.sleep(0.02)
    if i == 2:
        raise KeyError(i)
    return i
assert gather([lambda: slow(0), lambda: slow(1), lambda: slow(3), lambda: slow(4)]) == [0, 1, 3, 4]
try:
    gather([lambda i=i: slow(i) for i in range(4)])
    assert False
except KeyError as err:
    assert err.args == (2,)
"""
QUIET = "import threading\ndef work(f):\n    t = threading.Thread(target=f)\n    t.start()\n    t.join()\n"
LEFT = "import threading\nbefore = threading.active_count()\nfor _ in range(3):\n    work(lambda: None)\nassert threading.active_count() == before"

RIGHT = [
    ("Buffer", BUFFER, EXCHANGED),
    ("Meeting", MEETING, MET),
    ("later", LATER, CALLED),
    ("Lazy", LAZY, ONCE),
    ("spread", SPREAD, OWN_THREADS),
    ("Own", OWN_LOCAL, LOCAL),
    ("Counter", COUNTER, MANY),
    ("both", NESTED, CROSSED),
    ("gather", POOL, GATHERED),
    ("work", QUIET, LEFT),
]
WRONG = [
    ("Buffer", BUFFER.replace("pop(0)", "pop(0) and 0"), EXCHANGED),
    ("Meeting", MEETING.replace("return self.barrier.wait(1)", "return 1"), MET),
    ("later", LATER.replace("    t.start()\n", ""), CALLED),
    ("Lazy", LAZY.replace("if self.made is None", "if True"), ONCE),
    ("spread", SPREAD.replace("f(xs[i])", "None"), OWN_THREADS),
    ("Own", OWN_LOCAL.replace("threading.local()", "type('', (), {})()"), LOCAL),
    ("both", NESTED.replace("g()", "pass"), CROSSED),
]


TIMER = """import threading
e = threading.Event()
threading.Timer(.02, e.set).start()
assert wait_for(e, 2) is True"""
LATER = """import threading, time
class Flag:
    def __init__(self): self.up = False
    def is_set(self): return self.up
    def wait(self, most):
        time.sleep(.1)
        return self.up
e = Flag()
def later():
    time.sleep(.02)
    e.up = True
threading.Thread(target=later).start()
assert wait_for(e, 2) is True"""
WORKS = """import time
def wait_for(e, most):
    start = time.monotonic()
    while time.monotonic() - start < .06:
        sum(range(100))
    return e.is_set()
"""
SLEEPS = "import time\ndef wait_for(e, most):\n    time.sleep(.06)\n    return e.is_set()\n"
BY_NAME = "from time import sleep\ndef wait_for(e, most):\n    sleep(.06)\n    return e.is_set()\n"
OWN_EVENT = "import threading\ndef wait_for(e, most):\n    threading.Event().wait(.06)\n    return e.is_set()\n"
POLLS = "import time\ndef wait_for(e, most):\n    while not e.is_set():\n        time.sleep(.01)\n    return True\n"


HEARD = """
import threading
wrong = []
def work(n):
    try:
        if double(n) != 2 * n:
            wrong.append(n)
    except Exception as err:
        wrong.append(err)
threads = [threading.{made} for n in (1, 2, 3)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong
"""
CHECKED = """
import threading
def work(n):
    assert double(n) == 2 * n
threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(threads) == 3
"""
POOLED = """
from concurrent.futures import ThreadPoolExecutor, wait
wrong = []
def work(n):
    if double(n) != 2 * n:
        wrong.append(n)
with ThreadPoolExecutor(2) as pool:
    wait([pool.submit(work, n) for n in (1, 2, 3)])
assert not wrong
"""
TASKS = """
import asyncio
wrong = []
async def work(n):
    {call}
    if found != 2 * n:
        wrong.append(n)
async def main():
    await asyncio.wait([asyncio.create_task(work(n)) for n in (1, 2, 3)])
asyncio.run(main())
assert not wrong
"""
CANCELLED = """
import asyncio
async def main():
    task = asyncio.ensure_future(wait(5))
    await asyncio.sleep(.01)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return 'cancelled'
assert asyncio.run(main()) == {wanted!r}
"""
TIMED = """
import asyncio
async def main():
    try:
        return await asyncio.wait_for(wait(5), .02)
    except asyncio.TimeoutError:
        return 'cancelled'
assert asyncio.run(main()) == {wanted!r}
"""

DOUBLE = "def double(n):\n    return 2 * n"
WAIT = "import asyncio\nasync def wait(n):\n    await asyncio.sleep(n)"
BASE = "class Base:\n    def run(self):\n        return self.step()\n"
OTHERS = [
    (
        "asyncio",
        "f",
        "def f(x): return x + 1",
        "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self):\n"
        "        self.assertEqual(f(1), 2)",
    ),
    ("threads", "double", DOUBLE, HEARD.format(made="Thread(target=work, args=(n,))")),
    ("threads", "double", DOUBLE, CHECKED),
    ("threads", "double", DOUBLE, POOLED),
    ("threads", "wait_for", SLEEPS, TIMER),
    ("threads", "wait_for", POLLS, LATER),
    ("asyncio", "double", DOUBLE, TASKS.format(call="found = double(n)")),
    ("asyncio", "wait", WAIT, CANCELLED.format(wanted="cancelled")),
    ("asyncio", "wait", WAIT, TIMED.format(wanted="cancelled")),
    ("subclassing", "Base", BASE, "class Own(Base):\n    def step(self): return 3\nassert Own().run() == 3"),
    ("signature", "double", DOUBLE, "import inspect\nassert list(inspect.signature(double).parameters) == ['n']"),
    ("annotations", "double", DOUBLE, "assert double.__annotations__ == {} and double(2) == 4"),
    (
        "pytest.warns",
        "double",
        DOUBLE,
        "import pytest\nwith pytest.warns(UserWarning):\n    double(1)\nassert double(2) == 4",
    ),
    (
        "mock",
        "call",
        "def call(f): return f(1)",
        "from unittest.mock import Mock\nassert call(Mock(return_value=2)) == 2",
    ),
    (
        "mock.patch of os.remove",
        "double",
        DOUBLE,
        "from unittest.mock import patch\nwith patch('os.remove'):\n    assert double(1) == 2",
    ),
    (
        "an object of the test",
        "name",
        "def name(x): return x.name",
        "class P:\n    name = 'a'\nassert name(P()) == 'a'",
    ),
    ("a StringIO", "read", "def read(f): return f.read()", "import io\nassert read(io.StringIO('a')) == 'a'"),
    ("pickle", "P", "class P:\n    pass", "import pickle\np = P()\nassert pickle.loads(pickle.dumps(p))"),
    (
        "SimpleNamespace",
        "f",
        "def f(): return 1",
        "from types import SimpleNamespace\nassert f() == SimpleNamespace(a=1)",
    ),
    (
        "types of the solution",
        "f",
        "def f():\n    yield 1",
        "from types import GeneratorType\nassert type(f()) is GeneratorType",
    ),
]


def answer(verifier: CodeVerifier, entry: str, code: str, tests: str) -> tuple[object, ...]:
    verdict = verifier.verify(code, {"entry_point": entry, "tests": tests})
    return verdict.score, verdict.reason, verdict.detail.partition(":")[0]


@pytest.mark.parametrize(("entry", "code", "tests"), [*RIGHT, *WRONG])
def test_threads_have_no_verdict(verifier: CodeVerifier, entry: str, code: str, tests: str) -> None:
    assert answer(verifier, entry, code, tests) == (None, "not_supported", "threads")


@pytest.mark.parametrize(("what", "entry", "code", "tests"), OTHERS, ids=[o[0] for o in OTHERS])
def test_what_is_not_carried_has_no_verdict(
    verifier: CodeVerifier, what: str, entry: str, code: str, tests: str
) -> None:
    assert answer(verifier, entry, code, tests) == (None, "not_supported", what)


@pytest.mark.parametrize(("what", "entry", "code", "tests"), OTHERS, ids=[o[0] for o in OTHERS])
def test_one_process_carries_it_where_the_row_trusts_its_objects(
    verifier: CodeVerifier, what: str, entry: str, code: str, tests: str
) -> None:
    if what in (
        "mock.patch of os.remove",
        "pytest.warns",
        "SimpleNamespace",
        "annotations",
        "subclassing",
    ) or entry in ("wait_for", "wait"):
        return
    verdict = verifier.verify(code, {"entry_point": entry, "tests": tests, "trusted_objects": True})
    assert verdict.score == 1.0, verdict


ENDS = (
    "raise SystemExit(0)",
    "import sys; sys.exit()",
    "quit()",
    "exec('raise SystemExit(0)')",
    "import argparse; argparse.ArgumentParser().exit()",
    "raise KeyboardInterrupt",
    "import os; os._exit(0)",
    "import unittest; raise unittest.SkipTest('')",
    "import unittest.case; raise unittest.case._ShouldStop",
)


LEFT = (
    "for n in (1, 2):\n    assert double(n) == twice(n)",
    "def test_a():\n    assert double(1) == twice(1)\ndef test_b():\n    assert double(2) == twice(2)",
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(double(1), twice(1))\n"
    "    def test_b(self):\n        self.assertEqual(double(2), twice(2))\nif __name__ == '__main__':\n    unittest.main()",
    "import sys\nassert double(1) == twice(1)\nassert double(2) == twice(2)\nsys.exit(0)",
)
TWICE = "def twice(n):\n    return 2 * n\n"


@pytest.mark.parametrize("end", ENDS)
def test_a_solution_chooses_no_verdict_by_leaving(verifier: CodeVerifier, end: str) -> None:
    for row in ({}, {"trusted_objects": True}):
        for tests in LEFT:
            for at in (1, 2):
                code = f"def double(n):\n    if n < {at}: return 2 * n\n    {end}"
                verdict = verifier.verify(code, {"entry_point": "double", "tests": TWICE + tests, **row})
                assert verdict.score == 0.0, (tests, verdict)


@pytest.mark.parametrize("end", ["pytest.skip('')", "pytest.exit('')", "pytest.xfail('')"])
def test_nor_by_asking_for_pytest(verifier: CodeVerifier, end: str) -> None:
    row = {"entry_point": "double", "tests": TWICE + LEFT[1], "trusted_objects": True}
    assert verifier.verify(f"def double(n):\n    import pytest\n    {end}", row).score == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        *LEFT,
        "import pytest\ndef test_a():\n    with pytest.raises(TypeError):\n        double()\ndef test_b():\n    assert double(2) == twice(2)",
        "def test_a():\n    try:\n        assert double(1) == twice(2)\n    except AssertionError:\n        pass\n    assert double(1) == twice(1)",
        "def call(n):\n    raise KeyError(n)\ndef test_a():\n    try:\n        call(double(1))\n    except KeyError as err:\n        assert err.args == (twice(1),)",
        "import unittest\nclass T(unittest.TestCase):\n    def equal(self, n):\n        return self.assertEqual(double(n), twice(n))\n"
        "    def test_a(self):\n        self.equal(1)\n    @unittest.skip('')\n    def test_b(self):\n        self.fail()",
    ],
)
def test_what_leaves_a_check_by_itself_is_paid_in_one_process(verifier: CodeVerifier, tests: str) -> None:
    row = {"entry_point": "double", "tests": TWICE + tests, "trusted_objects": True}
    assert verifier.verify("def double(n):\n    return n + n", row).score == 1.0


def test_a_test_that_fails_before_it_asks_for_more_has_failed(verifier: CodeVerifier) -> None:
    assert score(verifier, "later", LATER.replace("t.start()", "f()"), CALLED) == 0.0


def test_a_container_that_changes_while_the_test_sleeps_is_seen(verifier: CodeVerifier) -> None:
    assert score(verifier, "fill", FILLS, FILLED) == 1.0
    assert score(verifier, "fill", FILLS.replace("append(1)", "append(2)"), FILLED) == 0.0


@pytest.mark.parametrize(
    ("tests", "what"),
    [
        ("def test_b():\n    assert f(1) == other(2)\nclass TestA:\n    class TestInner:\n        def test_a(self):\n            assert f(1) == other(2)", "tests in a nested class"),
        ("import pytest\n@pytest.mark.usefixtures('x')\ndef test_a():\n    assert f(1) == other(2)", "pytest.usefixtures"),
        ("import pytest\nclass TestA:\n    @pytest.fixture(autouse=True)\n    def n(self):\n        self.n = 1\n"
         "    def test_a(self):\n        assert f(self.n) == other(2)", "pytest.fixture"),
        ("class TestA:\n    def test_a(self):\n        assert f(1) == other(2)\n"
         "    @classmethod\n    def teardown_class(cls):\n        assert f(1) == 3", "pytest.teardown_class"),
        ("import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        self.addClassCleanup(print)\n"
         "        assert f(1) == other(2)", "unittest.addClassCleanup"),
        ("import pytest\n@pytest.mark.xfail\ndef test_a():\n    assert f(1) == other(3)", "pytest.xfail"),
        ("def test_a(request):\n    assert f(1) == other(2)", "pytest.request"),
        ("import pytest\n@pytest.fixture(name='two')\ndef fix(): return 2\ndef test_a(two):\n    assert f(1) == other(two)",
         "pytest.fixture"),
        ("import pytest\ndef test_a():\n    with pytest.raises(SystemExit) as e:\n        f(1)\n    assert e.value.code == other(2)",
         "the code of a SystemExit"),
        ("import pytest\n@pytest.fixture\ndef two():\n    return 2\ndef test_a(two):\n    assert f(1) == other(two)", "pytest.fixture"),
        ("def test_a(capsys):\n    f(1)\n    assert capsys.readouterr().out == other('')", "pytest.capsys"),
        ("def test_a(monkeypatch):\n    monkeypatch.setattr('time.time', f)\n    assert f(1) == other(2)", "pytest.monkeypatch"),
        ("import pytest\ndef test_a():\n    if f(1) == 2:\n        pytest.skip('no')\n    assert f(1) == other(2)", "pytest.skip"),
        ("import pytest\n@pytest.mark.slow\ndef test_a():\n    assert f(1) == other(2)", "pytest.slow"),
        ("import pytest\n@pytest.mark.parametrize('x', [1], indirect=True)\ndef test_a(x):\n    assert f(x) == other(2)",
         "pytest.mark.parametrize(indirect)"),
        ("def test_a(*, tmp_path):\n    assert f(1) == other(2)", "pytest.tmp_path"),
        ("from pytest import param\ndef test_a():\n    assert f(1) == other(2)", "pytest.param"),
        ("class TestA:\n    @classmethod\n    def setup_class(cls):\n        cls.n = 1\n    def test_a(self):\n        assert f(self.n) == other(2)",
         "pytest.setup_class"),
        ("import unittest\nclass TestA(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.n = 1\n"
         "    def test_a(self):\n        assert f(self.n) == other(2)", "unittest.setUpClass"),
        ("import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        with self.assertWarns(UserWarning):\n"
         "            f(1)\n        assert f(1) == other(2)", "unittest.assertWarns"),
        ("import os\ndef test_a():\n    os.environ['MODE'] = 'odd'\n    assert f(1) == other(2)", "os.environ"),
        ("import os\ndef test_a():\n    os.chdir('/')\n    assert f(1) == other(2)", "os.environ"),
        ("import os\ndef test_a():\n    first = os.getcwd()\n    assert f(1) == other(2) and os.getcwd() == first", "os.environ"),
        ("import builtins\ndef test_a():\n    builtins.input = lambda: '2'\n    assert f(1) == other(2)", "a patched module"),
        ("import sys, io\ndef test_a():\n    sys.stdin = io.StringIO('2')\n    assert f(1) == other(2)", "a patched module"),
        ("import time\ndef test_a():\n    setattr(time, 'time', lambda: 2)\n    assert f(1) == other(2)", "a patched module"),
        ("from unittest.mock import patch\ndef test_a():\n    with patch('builtins.input', return_value='2'):\n        assert f(1) == other(2)",
         "mock.patch of builtins.input"),
        ("def test_a():\n    assert f(x for x in [1]) == other(2)", "a generator"),
        ("import numpy as np\ndef test_a():\n    np.random.seed(0)\n    assert f(1) == other(2)", "numpy.random.seed"),
    ],
)  # fmt: skip
def test_what_the_shim_would_pass_over_has_no_verdict(verifier: CodeVerifier, tests: str, what: str) -> None:
    row = {"entry_point": "f", "tests": "def other(x): return x\n" + tests}
    for code in ("def f(x): return 2", "def f(x): return 5"):
        verdict = verifier.verify(code, row)
        assert (verdict.score, verdict.reason, verdict.detail) == (None, "not_supported", what), verdict


def test_the_same_seed_twice_gives_the_same_draws(verifier: CodeVerifier) -> None:
    code = "import random\ndef roll(n): return [random.random() for _ in range(n)]"
    tests = "import random\nrandom.seed(0)\na = roll(5)\nrandom.seed(0)\nb = roll(5)\nc = roll(5)\nassert a == b != c"
    assert verifier.verify(code, {"entry_point": "roll", "tests": tests}).score == 1.0


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int = field(compare=False)\n    y: int = field(compare=False)\n"
         "    def __add__(self, o): return self", "assert P(1, 2) + P(3, 4) == P(4, 6)"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    def __init__(self, *a): pass\n    def __add__(self, o): return self",
         "assert P(1, 2) + P(3, 4) == P(4, 6)"),
        ("from enum import IntFlag\nclass P(IntFlag):\n    R = 1\n    W = 2", "both = P.R | P.W\nassert both.value == 3 and P.R in both"),
        ("class P(tuple):\n    def __new__(cls, *a): return tuple.__new__(cls, a)\n"
         "    def __add__(self, o): return P(*(a + b for a, b in zip(self, o)))", "a = P(1, 2)\nassert a + P(3, 4) == P(4, 6)"),
        ("class P:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o", "p = P(5)\nassert p == 5"),
    ],
)  # fmt: skip
def test_operators_of_objects_that_the_test_has_made_are_not_decided(
    verifier: CodeVerifier, code: str, tests: str
) -> None:
    verdict = verifier.verify(code, {"entry_point": "P", "tests": tests})
    assert (verdict.score, verdict.reason) == (None, "untrusted_objects"), verdict


def test_a_helper_of_the_test_may_have_the_name_of_a_fixture(verifier: CodeVerifier) -> None:
    tests = "def request(x): return f(x)\ndef test_a():\n    caplog = request(1)\n    assert caplog == f(1) == 2"
    assert verifier.verify("def f(x): return 2", {"entry_point": "f", "tests": tests}).score == 1.0


@pytest.mark.parametrize(
    ("text", "is_alone"),
    [
        ("import numpy as np\nfrom scipy.special import expit\nassert np.allclose(f(1), expit(1))", False),
        ("import random\nrandom.shuffle([1, 2])\nassert f(random.random()) < 1", False),
        ("from random import randint, choice\nfrom timeit import timeit\nassert f(choice([1]))", False),
        ("import numpy as np\nassert f(np.random.rand(3))", True),
        ("from numpy import random\nassert f(random.rand(3))", True),
        ("from numpy.random import rand\nassert f(rand(3))", True),
        ("from scipy import stats\nassert f(stats.norm.rvs())", True),
        ("from scipy.stats import norm\nassert f(norm.rvs())", True),
        ("import numpy as np\nnp.seterr(all='raise')\nassert f(1)", True),
        ("import numpy\nnumpy.set_printoptions(2)\nassert f(1)", True),
        ("import random\nrandom.random = f\nassert f(1)", True),
    ],
)
def test_a_program_that_leaves_something_behind_is_run_in_a_process_of_its_own(text: str, is_alone: bool) -> None:
    assert is_plain(ast.parse(text)) is not is_alone
