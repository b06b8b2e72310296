"""The isolation of the maths verifier: nothing hostile reaches the caller, and the caller's process is left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_verifiers import Outcome, Sample, Verdict, build
from grpo_verifiers.kinds.maths_answer import MathVerifier
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.proving.prover import PROVER

ROOT = Path(__file__).resolve().parents[3]
OPEN = ("2\\sin x\\cos x", "\\boxed{\\sin 2x}")


def hostile(k: int) -> Sample:
    """One, by an identity that takes sympy many seconds to see."""
    n = 31 + 2 * k
    product = "".join(f"\\cos(\\frac{{{i}\\pi}}{{{n}}})" for i in range(1, (n + 1) // 2))
    return Sample(f"\\boxed{{2^{{{(n - 1) // 2}}}{product}}}", build("math").compile({"answer": "1"}))


def slow(k: int) -> Sample:
    """A function of letters that equals another at every point as far as digits tell; sympy rewrites it for seconds."""
    answer = "\\boxed{\\sin(x+10^{-300})" + "".join(f"\\cos({i}x+{k})" for i in range(1, 9)) + "}"
    return Sample(answer, build("math").compile({"answer": answer[7:-1].replace("+10^{-300}", "")}))


def processes() -> list[int]:
    """The keepers, each with its worker behind it."""
    found = []
    for slot in PROVER.pool._slots:
        assert slot._keeper is not None
        assert slot._pid > 0
        found += [slot._keeper.process.pid, slot._pid]
    return found


@pytest.fixture(scope="module")
def maths() -> Iterator[MathVerifier]:
    verifier = MathVerifier()
    verifier.verify(OPEN[1], {"answer": OPEN[0]})
    yield verifier
    verifier.close()


def test_an_open_pair_is_proved_in_the_child(maths: MathVerifier) -> None:
    verdict = maths.verify(OPEN[1], {"answer": OPEN[0]})
    assert (verdict.outcome, verdict.reason) == (Outcome.RIGHT, "equal:symbolic")
    assert "sympy" not in sys.modules or "pytest" in sys.modules


def test_an_answer_that_overstays_gets_no_verdict_and_the_next_one_is_judged(maths: MathVerifier) -> None:
    start = time.perf_counter()
    late, fine = maths.judge([slow(0), Sample(OPEN[1].replace("2x", "(2x)"), maths.compile({"answer": OPEN[0]}))])
    assert (late.outcome, late.score, late.reason) == (Outcome.ERROR, None, "no_proof_in_time")
    assert fine.outcome is Outcome.RIGHT
    assert time.perf_counter() - start < 5


def test_what_nothing_shows_to_be_equal_or_not_gets_no_verdict(maths: MathVerifier) -> None:
    verdict = maths.verify("\\boxed{\\sin(x+10^{-300})}", {"answer": "\\sin x"})
    assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)
    assert verdict.reason in ("unproved", "no_proof_in_time")
    assert maths.verify("\\boxed{\\sin(x+10^{-300})}", {"answer": "\\sin x"}).outcome is Outcome.ERROR


RIGHT = [
    ("2\\sin x\\cos x", "\\sin 2x"), ("\\cos^2 x-\\sin^2 x", "\\cos 2x"), ("\\sec^2 x", "1+\\tan^2 x"), ("\\sin 3x", "3\\sin x-4\\sin^3 x"),
    ("\\cos^4 x-\\sin^4 x", "1-2\\sin^2 x"), ("\\tan\\frac x2", "\\frac{\\sin x}{1+\\cos x}"), ("n!", "n(n-1)!"), ("\\binom{n}{2}", "\\frac{n(n-1)}{2}"),
    ("\\sinh x", "\\frac{e^x-e^{-x}}{2}"), ("\\arcsin\\frac35", "\\arccos\\frac45"), ("\\arctan 2+\\arctan 3", "\\frac{3\\pi}{4}"),
    ("\\sqrt2+\\sqrt3", "\\sqrt{5+2\\sqrt6}"), ("\\frac{\\sqrt6-\\sqrt2}{4}", "\\sin 15^\\circ"), ("2+\\sqrt3", "\\sqrt[3]{26+15\\sqrt3}"),
    ("\\frac18", "\\cos 20^\\circ\\cos 40^\\circ\\cos 80^\\circ"), ("e^{i\\pi/3}", "\\frac12+\\frac{\\sqrt3}{2}i"), ("x^x", "e^{x\\ln x}"),
    ("\\ln(2+\\sqrt3)", "-\\ln(2-\\sqrt3)"),
]  # fmt: skip


def test_a_verdict_does_not_depend_on_its_batch(maths: MathVerifier) -> None:
    ones = "\\cdot 1" * 20
    right = [Sample(f"\\boxed{{({a}){ones}}}", maths.compile({"answer": gold})) for gold, a in RIGHT]
    options = MathOptions(seconds=0.3)
    assert [MathVerifier(options).judge([sample])[0].outcome for sample in right] == [Outcome.RIGHT] * 18
    late = [slow(k) for k in range(20)]
    verdicts = MathVerifier(options).judge(late + right)
    assert [v.reason for v in verdicts[: len(late)]] == ["no_proof_in_time"] * len(late)
    assert [v.outcome for v in verdicts[len(late) :]] == [Outcome.RIGHT] * len(right)


def test_64_hostile_answers_at_once_from_a_thread_are_done_in_time(maths: MathVerifier) -> None:
    samples = [hostile(k) for k in range(64)]
    out: list[Verdict] = []
    thread = threading.Thread(target=lambda: out.extend(MathVerifier().judge(samples)))
    start = time.perf_counter()
    thread.start()
    thread.join(15)
    assert not thread.is_alive()
    assert time.perf_counter() - start < 15
    assert len(out) == 64
    assert all(v.outcome in (Outcome.RIGHT, Outcome.ERROR) for v in out)


def test_it_works_inside_asyncio(maths: MathVerifier) -> None:
    async def both() -> list[Verdict]:
        return list(
            await asyncio.gather(*(asyncio.to_thread(maths.verify, OPEN[1], {"answer": OPEN[0]}) for _ in range(4)))
        )

    assert all(v.outcome is Outcome.RIGHT for v in asyncio.run(both()))


def test_the_callers_alarm_is_left_alone(maths: MathVerifier) -> None:
    previous = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        handler = signal.getsignal(signal.SIGALRM)
        maths.judge([hostile(70), Sample("\\boxed{9^{9^{9}}}", maths.compile({"answer": "5"}))])
        assert signal.getsignal(signal.SIGALRM) is handler
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_a_killed_child_is_replaced(maths: MathVerifier) -> None:
    maths.verify("\\boxed{\\sin(2y)}", {"answer": "2\\sin y\\cos y"})
    for pid in processes():
        os.kill(pid, signal.SIGKILL)
    verdict = maths.verify("\\boxed{\\sin(2z)}", {"answer": "2\\sin z\\cos z"})
    assert verdict.outcome is Outcome.RIGHT


def test_a_worker_stays_below_256_mb(maths: MathVerifier) -> None:
    maths.verify("\\boxed{\\sin(2w)}", {"answer": "2\\sin w\\cos w"})
    peaks = []
    for pid in processes()[1::2]:
        status = Path(f"/proc/{pid}/status").read_text()
        peaks += [int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    assert peaks
    assert max(peaks) < 256


def test_the_child_dies_with_its_parent() -> None:
    code = (
        "from grpo_verifiers.kinds.maths_answer import MathVerifier; from grpo_verifiers.maths.proving.prover import PROVER; import os\n"
        f"v = MathVerifier(); v.verify({OPEN[1]!r}, {{'answer': {OPEN[0]!r}}})\n"
        "for slot in PROVER.pool._slots: print(slot._keeper.process.pid, slot._pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "verifiers")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_cheap_tiers_import_no_computer_algebra() -> None:
    code = (
        "import sys; from grpo_verifiers import build; v = build('math')\n"
        "assert v.verify('\\\\boxed{\\\\frac{1}{\\\\sqrt{2}}}', {'answer': '\\\\frac{\\\\sqrt{2}}{2}'}).score == 1.0\n"
        "assert v.verify('\\\\boxed{9^{9^{9}}}', {'answer': '5'}).score == 0.0\n"
        "heavy = {'sympy', 'math_verify', 'torch', 'pydantic', 'mpmath', 'antlr4'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "verifiers")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


def test_without_a_child_an_open_answer_gets_no_score_and_others_are_judged(
    maths: MathVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    PROVER.close()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    gold = maths.compile({"answer": "2\\sin v\\cos v"})
    opened, plain = maths.judge(
        [Sample("\\boxed{\\sin 2v}", gold), Sample("\\boxed{5}", maths.compile({"answer": "5"}))]
    )
    assert (opened.outcome, opened.score, opened.reason) == (Outcome.ERROR, None, "no_child")
    assert plain.outcome is Outcome.RIGHT
    monkeypatch.undo()
    assert maths.verify("\\boxed{\\sin 2v}", {"answer": "2\\sin v\\cos v"}).outcome is Outcome.RIGHT


def test_a_verifier_survives_pickling_and_a_fork_of_the_caller(maths: MathVerifier) -> None:
    code = (
        "import os, pickle; from grpo_verifiers.kinds.maths_answer import MathVerifier\n"
        "v = pickle.loads(pickle.dumps(MathVerifier())); row = {'answer': '2\\\\sin x\\\\cos x'}\n"
        "assert v.verify('\\\\boxed{\\\\sin 2x}', row).score == 1.0\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(0 if v.verify('\\\\boxed{\\\\sin(2x)}', row).score == 1.0 else 3)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert v.verify('\\\\boxed{\\\\sin(x+x)}', row).score == 1.0"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "verifiers")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
