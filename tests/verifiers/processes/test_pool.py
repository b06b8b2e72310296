"""The pool: nothing an item does may hang, crash or slow the caller, and no worker outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_verifiers.processes.pool import Done, Killed, LoadFailed, Pool, ProcessLimits, Raised

HERE = Path(__file__).parent
LIMITS = ProcessLimits(cpu_s=0.2, wall_s=0.6, memory_mb=128)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool("pool_tasks:make", {"a": 1}, workers=2, limits=LIMITS, path=[str(HERE)])
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def gone_soon(pid: int) -> bool:
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def test_results_keep_the_order_of_items(pool: Pool) -> None:
    assert [r.value for r in pool.run(list(range(500))) if isinstance(r, Done)] == list(range(500))


def test_no_items_give_no_results(pool: Pool) -> None:
    assert pool.run([]) == []


def test_info_of_the_task_reaches_the_host(pool: Pool) -> None:
    assert pool.start() == {"config": {"a": 1}}


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("loop", "timeout"),
        ("hold the interpreter", "timeout"),
        ("sleep", "no_reply"),
        ("eat memory", "memory"),
        ("exit", "died"),
    ],
)
def test_a_bad_item_is_killed_alone(pool: Pool, word: str, reason: str) -> None:
    began = time.monotonic()
    before, bad, after = pool.run(["before", word, "after"])
    assert isinstance(before, Done) and isinstance(after, Done)
    assert isinstance(bad, Killed) and bad.reason == reason
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("word", ["garbage", "fork and exit", "kill the keeper", "close everything"])
def test_an_item_that_attacks_its_worker_harms_no_other(pool: Pool, word: str) -> None:
    before, bad, after = pool.run(["before", word, "after"])
    assert isinstance(before, Done) and isinstance(after, Done) and isinstance(bad, Killed)


def test_a_copy_that_the_work_forked_does_not_answer_in_its_place(pool: Pool) -> None:
    """Else it would answer a second time, and every item behind would be given the reply to the one before."""
    results = pool.run(["fork and return", 1, 2, 3, 4])
    assert [r.value for r in results if isinstance(r, Done)] == ["fork and return", 1, 2, 3, 4]


def test_a_reply_out_of_turn_ends_the_worker_and_is_no_result() -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    assert isinstance(pool.run(["warm"])[0], Done)
    first, second, third = pool.run(["answer twice", "second", "third"])
    pool.close()
    assert first == Killed("died", first.seconds)
    assert isinstance(second, Done) and second.value == "second"
    assert isinstance(third, Done) and third.value == "third"


def test_all_workers_hash_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    found = []
    for _ in range(2):
        pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
        found += [r.value for r in pool.run(["hash"]) if isinstance(r, Done)]
        pool.close()
    assert found[0] == found[1]


def test_a_worker_gives_way_to_a_fresh_one_after_so_many_items() -> None:
    limits = ProcessLimits(cpu_s=0.5, most_items=2, forks=False)
    pool = Pool("pool_tasks:make", workers=1, limits=limits, path=[str(HERE)])
    pids = [r.value[0] for _ in range(5) for r in pool.run(["pid"]) if isinstance(r, Done)]
    (forks,) = pool.run(["forks?"])
    pool.close()
    assert len(pids) == 5 and pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert forks == Done(False, forks.seconds)


def test_one_job_after_another_needs_one_worker_and_jobs_beside_each_other_more() -> None:
    pool = Pool("pool_tasks:make", workers=3, limits=LIMITS, path=[str(HERE)])
    for n in range(20):
        pool.submit([n]).result()
    assert len(pool._slots) == 1
    for future in [pool.submit(["sleep"]) for _ in range(2)]:
        future.result()
    assert len(pool._slots) == 2
    pool.close()


def test_launching_waits_for_nothing_and_neither_does_closing_what_still_loads() -> None:
    began = time.monotonic()
    pool = Pool("pool_tasks:slow", workers=1, limits=LIMITS, path=[str(HERE)])
    pool.launch()
    launched = time.monotonic()
    while pool._slots[0]._keeper is None:
        time.sleep(0.01)
    keeper = pool._slots[0]._keeper.process.pid
    pool.close()
    assert launched - began < 0.5 and time.monotonic() - launched < 3
    assert gone_soon(keeper)


def test_what_a_module_asked_for_at_the_end_is_done_and_its_threads_are_not_waited_for(tmp_path: Path) -> None:
    pool = Pool("pool_tasks:leaving", str(tmp_path / "left"), workers=1, limits=LIMITS, path=[str(HERE)])
    pool.run([1])
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 1.5
    assert (tmp_path / "left").read_text() == "left"


def test_a_forked_copy_that_ends_leaves_the_workers_of_its_parent_alone() -> None:
    code = (
        "import os, sys; from grpo_verifiers.processes.pool import Pool\n"
        "pool = Pool('pool_tasks:make', workers=1); before = pool.run(['pid'])[0].value\n"
        "if os.fork() == 0: sys.exit(0 if pool.run(['pid'])[0].value[1] != before[1] else 3)\n"
        "assert os.wait()[1] == 0\n"
        "if os.fork() == 0: sys.exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "assert pool.run(['pid'])[0].value == before\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[2] / 'verifiers'}"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


def test_without_workers_the_results_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    assert isinstance(pool.run([1])[0], Done)
    pool.run(["kill the keeper"])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert pool.run(["kill the keeper", 2])[-1] == Killed("unavailable", 0.0)
    pool.close()


@pytest.mark.parametrize(
    ("word", "kind"), [("raise", "ValueError"), ("system exit", "SystemExit"), ("object", "TypeError")]
)
def test_an_exception_is_data(pool: Pool, word: str, kind: str) -> None:
    (result,) = pool.run([word])
    assert isinstance(result, Raised) and result.kind == kind and "Traceback" in result.traceback


def test_bytes_come_back_as_they_are(pool: Pool) -> None:
    assert pool.run(["bytes"])[0] == Done(b"\x00raw", 0.0)


def test_memory_that_earlier_items_kept_is_not_the_next_items_fault() -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    results = pool.run(["keep memory"] * 5)
    pool.close()
    assert all(isinstance(r, Done) for r in results)


def test_many_threads_may_share_a_pool(pool: Pool) -> None:
    got: dict[int, list[object]] = {}

    def use(n: int) -> None:
        got[n] = [r.value for r in pool.run([n] * 50) if isinstance(r, Done)]

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {n: [n] * 50 for n in range(8)}


def test_workers_outlive_the_thread_that_started_them() -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    first: list[object] = []
    thread = threading.Thread(target=lambda: first.extend(pool.run(["pid"])))
    thread.start()
    thread.join()
    time.sleep(0.05)
    second = pool.run(["pid"])
    pool.close()
    assert isinstance(first[0], Done) and isinstance(second[0], Done) and first[0].value == second[0].value


def test_the_callers_heart_beats_while_a_worker_holds_its_interpreter(pool: Pool) -> None:
    beats = 0
    stop = threading.Event()

    def beat() -> None:
        nonlocal beats
        while not stop.wait(0.01):
            beats += 1

    thread = threading.Thread(target=beat)
    thread.start()
    pool.run(["hold the interpreter"])
    stop.set()
    thread.join()
    assert beats >= 5


def test_the_callers_signals_are_left_alone(pool: Pool) -> None:
    before = (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT), signal.getitimer(signal.ITIMER_REAL))
    pool.run(["loop"])
    after = (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT), signal.getitimer(signal.ITIMER_REAL))
    assert before == after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_workers_outlive_what_a_terminal_or_a_scheduler_sends_to_all(pool: Pool, number: signal.Signals) -> None:
    (result,) = pool.run(["pid"])
    assert isinstance(result, Done)
    for pid in result.value:
        os.kill(pid, number)
    assert isinstance(pool.run(["still here"])[0], Done)
    assert all(alive(pid) for pid in result.value)


def test_a_process_that_a_task_forks_is_terminated_as_usual(pool: Pool) -> None:
    (result,) = pool.run(["fork and terminate"])
    assert isinstance(result, Done)
    assert result.value == -signal.SIGTERM


def test_a_killed_keeper_is_replaced() -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    (result,) = pool.run(["pid"])
    assert isinstance(result, Done)
    for pid in reversed(result.value):
        os.kill(pid, signal.SIGKILL)
    assert all(isinstance(r, Done) for r in pool.run([1, 2, 3]))
    pool.close()


def test_a_task_that_cannot_be_loaded_says_why() -> None:
    with pytest.raises(LoadFailed, match="LookupError: no luck"):
        Pool("pool_tasks:broken", "luck", path=[str(HERE)]).start()


def test_close_ends_all_processes_and_may_be_called_twice() -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    (result,) = pool.run(["pid"])
    pool.close()
    pool.close()
    assert isinstance(result, Done) and all(gone_soon(pid) for pid in result.value)


def test_a_closed_pool_starts_again() -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    pool.run([1])
    pool.close()
    assert isinstance(pool.run([2])[0], Done)
    pool.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_parent_even_in_a_busy_loop(how: signal.Signals) -> None:
    code = "import pool_tasks; pool_tasks.pids_then_wait('x')"
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[2] / 'verifiers'}"}
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(alive(pid) for pid in pids)
    parent.send_signal(how)
    parent.wait()
    assert all(gone_soon(pid) for pid in pids)
    parent.stdout.close()
    parent.stdin.close()  # type: ignore[union-attr]


def test_what_a_worker_prints_stays_out_of_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    pool = Pool("pool_tasks:make", workers=1, limits=LIMITS, path=[str(HERE)])
    pool.run(["print"])
    pool.close()
    assert capfd.readouterr().out == ""
