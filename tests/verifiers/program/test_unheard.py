"""Ends that a test program does not hear of by itself: of its threads by an exception, of a task whose cancellation is caught."""

from __future__ import annotations

import pytest

from grpo_verifiers.program import CodeVerifier
from tests.builders.code_verifiers import score

GATHERED = """
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
ENDS = (
    "raise SystemExit(0)",
    "import sys; sys.exit()",
    "raise KeyboardInterrupt",
    "raise GeneratorExit",
    "raise type('Quiet', (BaseException,), {})()",
)


@pytest.mark.parametrize("made", ["Thread(target=work, args=(n,))", "Timer(0.001, work, (n,))"])
@pytest.mark.parametrize("end", ENDS)
def test_thread_that_ends_before_its_check_is_not_passed(verifier: CodeVerifier, made: str, end: str) -> None:
    tests = GATHERED.format(made=made)
    assert score(verifier, "double", f"def double(n):\n    {end}", tests) == 0
    assert score(verifier, "double", "def double(n):\n    return 2 * n", tests) == 1


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
SILENCED = "import threading\nthreading.excepthook = lambda about: None" + GATHERED.format(
    made="Thread(target=work, args=(n,))"
)
KEEPERS = {
    "pool": POOLED,
    "tasks": TASKS.format(call="found = double(n)"),
    "to_thread": TASKS.format(call="found = await asyncio.to_thread(lambda: double(n) + 0)"),
    "hook": SILENCED,
}


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("end", ENDS)
def test_end_that_a_pool_or_a_task_keeps_is_not_passed(verifier: CodeVerifier, keeper: str, end: str) -> None:
    assert score(verifier, "double", f"def double(n):\n    {end}", KEEPERS[keeper]) == 0
    assert score(verifier, "double", "def double(n):\n    return 2 * n", KEEPERS[keeper]) == 1


LEAVING = "import sys\ndef main(args):\n    if not args:\n        sys.exit(2)\n    return len(args)"
EXPECTED_ENDS = [
    "import pytest\nwith pytest.raises(SystemExit):\n    main([])\nassert main('ab') == 2",
    "try:\n    main([])\n    assert False\nexcept:\n    pass\nassert main('ab') == 2",
    "import contextlib\nwith contextlib.suppress(BaseException):\n    main([])\nassert main('ab') == 2",
    "import pytest\n@pytest.mark.parametrize('end', [SystemExit])\ndef test_end(end):\n"
    "    with pytest.raises(end):\n        main([])",
    "import unittest\nclass T(unittest.TestCase):\n    def test_end(self):\n"
    "        self.assertRaises(SystemExit, lambda: main([]))",
    "import threading\nseen = []\ndef work():\n    try:\n        main([])\n    except SystemExit as err:\n"
    "        seen.append(err.code)\nt = threading.Thread(target=work)\nt.start(); t.join()\nassert seen == [2]",
]


@pytest.mark.parametrize("tests", EXPECTED_ENDS)
def test_end_that_the_test_expects_is_passed(verifier: CodeVerifier, tests: str) -> None:
    assert score(verifier, "main", LEAVING, tests) == 1


CLOSING = """
import threading
class Closed(Exception):
    pass
class Line:
    def __init__(self):
        self.items, self.changed, self.is_open = [], threading.Condition(), True
    def put(self, item):
        with self.changed:
            self.items.append(item)
            self.changed.notify()
    def close(self):
        with self.changed:
            self.is_open = False
            self.changed.notify_all()
    def get(self):
        with self.changed:
            while not self.items and self.is_open:
                self.changed.wait(1)
            if not self.items:
                raise Closed
            return self.items.pop(0)
"""
ENDED_BY_IT = """
import threading
line, got, hooked = Line(), [], []
{hook}
def work():
    while True:
        got.append(line.get())
t = threading.Thread(target=work, daemon=True)
t.start()
line.put(1); line.put(2); line.close()
t.join(1)
assert got == [1, 2] and not t.is_alive()
{seen}
waits = threading.Thread(target=Line().get, daemon=True)
waits.start()
assert waits.is_alive()
"""


@pytest.mark.parametrize("hook", ["", "threading.excepthook = lambda about: hooked.append(about.exc_type)"])
def test_thread_that_an_exception_ends_on_purpose_is_passed(verifier: CodeVerifier, hook: str) -> None:
    seen = "assert hooked == [Closed]" if hook else ""
    assert score(verifier, "Line", CLOSING, ENDED_BY_IT.format(hook=hook, seen=seen)) == 1


@pytest.mark.parametrize("end", ["return 0", "raise ValueError", "raise AssertionError"])
def test_check_that_fails_in_a_thread_is_not_passed(verifier: CodeVerifier, end: str) -> None:
    assert score(verifier, "double", f"def double(n):\n    {end}", CHECKED) == 0
    assert score(verifier, "double", "def double(n):\n    return 2 * n", CHECKED) == 1


def test_thread_whose_target_leaves_by_an_exit_is_passed(verifier: CodeVerifier) -> None:
    code = (
        "import sys\nseen = []\ndef count(n):\n    seen.append(n)\n    sys.exit()\ndef total():\n    return sum(seen)"
    )
    tests = "import threading\nt = threading.Thread(target=count, args=(3,))\nt.start(); t.join()\nassert total() == 3"
    assert score(verifier, "total", code, tests) == 1


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
PASSED_ON = "import asyncio\nasync def wait(n):\n    try:\n        await asyncio.sleep(n)\n    finally:\n        await asyncio.sleep(.01)"
KEPT = "import asyncio\nasync def wait(n):\n    try:\n        await asyncio.sleep(n)\n    except asyncio.CancelledError:\n        await asyncio.sleep(.01)\n    return 'kept'"
OWN = "import asyncio\nasync def wait(n):\n    raise asyncio.CancelledError"


@pytest.mark.parametrize("tests", [CANCELLED, TIMED])
def test_what_becomes_of_a_cancellation_is_what_the_coroutine_does(verifier: CodeVerifier, tests: str) -> None:
    assert score(verifier, "wait", PASSED_ON, tests.format(wanted="cancelled")) == 1
    assert score(verifier, "wait", KEPT, tests.format(wanted="cancelled")) == 0
    assert score(verifier, "wait", KEPT, tests.format(wanted="kept")) == 1
    assert score(verifier, "wait", OWN, tests.format(wanted="cancelled")) == 0
