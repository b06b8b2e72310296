"""Threads of a test and of a solution: each has one of its own on the other side, so they wait for each other as in one process."""

from __future__ import annotations

import pytest

from grpo_verifiers.program import CodeVerifier
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
    ("fill", FILLS, FILLED),
    ("gather", POOL, GATHERED),
    ("work", QUIET, LEFT),
]
WRONG = [
    ("Buffer", BUFFER.replace("pop(0)", "pop(0) and 0"), EXCHANGED),
    ("Meeting", MEETING.replace("return self.barrier.wait(1)", "return 1"), MET),
    ("later", LATER.replace("    t.start()\n", ""), CALLED),
    ("later", LATER.replace("t.start()", "f()"), CALLED),
    ("Lazy", LAZY.replace("if self.made is None", "if True"), ONCE),
    ("spread", SPREAD.replace("f(xs[i])", "None"), OWN_THREADS),
    ("Own", OWN_LOCAL.replace("threading.local()", "type('', (), {})()"), LOCAL),
    ("fill", FILLS.replace("append(1)", "append(2)"), FILLED),
    ("both", NESTED.replace("g()", "pass"), CROSSED),
]


@pytest.mark.parametrize(("entry", "code", "tests"), RIGHT, ids=[r[0] for r in RIGHT])
def test_threads_wait_for_each_other_across_the_wall(verifier: CodeVerifier, entry: str, code: str, tests: str) -> None:
    assert score(verifier, entry, code, tests) == 1.0


@pytest.mark.parametrize(("entry", "code", "tests"), WRONG, ids=[r[0] for r in WRONG])
def test_threads_that_do_something_else_fail(verifier: CodeVerifier, entry: str, code: str, tests: str) -> None:
    assert score(verifier, entry, code, tests) == 0.0


SLEEPER = """
import threading, time
out = []
def work():
    time.sleep(0.05)
    out.append(1)
thread = threading.Thread(target=work)
thread.start()
wait_for(thread)
assert out == [1]
"""
UNSEEN = "import queue, threading\ndef wait_for(t):\n    box = queue.SimpleQueue()\n    def look():\n        t.join()\n        box.put(1)\n    threading.Thread(target=look).start()\n    box.get()\n"
HEAVY = "import time\ndef wait_for(t):\n    end = time.monotonic() + 0.8\n    while time.monotonic() < end: pass\n    return [0] * 400000\n"


def test_a_wait_that_is_not_told_is_seen_and_an_answer_that_takes_long_is_none(verifier: CodeVerifier) -> None:
    assert score(verifier, "wait_for", UNSEEN, SLEEPER) == 1.0
    assert score(verifier, "wait_for", HEAVY, SLEEPER) == 0.0
