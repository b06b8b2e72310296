"""Ends that a test program does not hear of by itself: of its threads by an exception, of a task whose cancellation is caught."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_verifiers.program import CodeOptions, CodeVerifier


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    made = CodeVerifier(CodeOptions(lanes=1))
    yield made
    made.close()


def score(verifier: CodeVerifier, entry: str, code: str, tests: str) -> float | None:
    verdict = verifier.verify(code, {"entry_point": entry, "tests": tests})
    assert verdict.outcome != "error", verdict
    return verdict.score


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


@pytest.mark.parametrize("end", ["return 0", "raise ValueError", "raise AssertionError"])
def test_check_that_fails_in_a_thread_is_not_passed(verifier: CodeVerifier, end: str) -> None:
    assert score(verifier, "double", f"def double(n):\n    {end}", CHECKED) == 0
    assert score(verifier, "double", "def double(n):\n    return 2 * n", CHECKED) == 1


def test_thread_whose_target_leaves_by_an_exit_is_passed(verifier: CodeVerifier) -> None:
    code = "import sys\nseen = []\ndef count(n):\n    seen.append(n)\n    sys.exit()\ndef total():\n    return sum(seen)"
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
def test_what_becomes_of_a_cancellation_is_what_the_coroutine_does(
    verifier: CodeVerifier, tests: str
) -> None:
    assert score(verifier, "wait", PASSED_ON, tests.format(wanted="cancelled")) == 1
    assert score(verifier, "wait", KEPT, tests.format(wanted="cancelled")) == 0
    assert score(verifier, "wait", KEPT, tests.format(wanted="kept")) == 1
    assert score(verifier, "wait", OWN, tests.format(wanted="cancelled")) == 0
