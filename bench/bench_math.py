r"""Speed of the maths verifier as a ratio to naive math-verify, in one run on one core. Not a test: prints figures.

    PYTHONPATH=.:verifiers python bench/bench_math.py [--rows 300]

Naive is `verify(parse('\boxed{' + gold + '}'), parse(response))`. Ours compiles the gold and judges the response, with
distinct answers and cold caches. CPU seconds of the caller and of its children, so that nothing hides in the child.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("GRPO_DATA", ROOT.parent / "shared" / "data"))
CASES = ROOT / "tests" / "cases" / "math_dev.jsonl"

Pair = tuple[str, str]


def load(name: str, prose: str, rows: int) -> list[Pair]:
    """(gold, prose of the row) with distinct golds first."""
    with (DATA / name).open() as file:
        found = [json.loads(line) for line in file]
    return [(str(row["answer"]), row[prose]) for row in found[:rows]]


def right_and_wrong(rows: list[Pair]) -> dict[str, list[Pair]]:
    """(gold, response): the row's own answer boxed, and the answer of another row with another answer."""
    right = [(gold, f"{prose}\nSo the answer is $\\boxed{{{gold}}}$.") for gold, prose in rows]
    wrong = []
    for i, (gold, prose) in enumerate(rows):
        other = next(g for g, _ in rows[i + 1 :] + rows[: i + 1] if g != gold)
        wrong.append((gold, f"{prose}\nSo the answer is $\\boxed{{{other}}}$."))
    return {"right": right, "wrong": wrong}


def cpu() -> float:
    """CPU seconds of this process and its ended children."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(judge: Callable[[str, str], bool], pairs: list[Pair]) -> tuple[float, list[float], int]:
    """CPU seconds, wall milliseconds of each, number judged right."""
    each, right = [], 0
    start = cpu()
    for gold, response in pairs:
        before = time.perf_counter()
        right += judge(gold, response)
        each.append(1000 * (time.perf_counter() - before))
    return cpu() - start, sorted(each), right


def naive() -> Callable[[str, str], bool]:
    """math-verify with the gold put in a box."""
    from math_verify import parse, verify

    return lambda gold, response: bool(verify(parse("\\boxed{" + gold + "}"), parse(response)))


def ours() -> Callable[[str, str], bool]:
    """A fresh verifier."""
    from grpo_verifiers import build
    from grpo_verifiers.maths.comparing.golds import _compile_text

    _compile_text.cache_clear()
    verifier = build("math")
    return lambda gold, response: verifier.verify(response, {"answer": gold}).score == 1.0


def import_cost() -> None:
    """Seconds, resident memory and the absence of sympy, in a fresh process."""
    code = (
        "import time,sys,resource; t=time.perf_counter(); c=time.process_time(); from grpo_verifiers import build; v=build('math');"
        "d=v.verify('\\\\boxed{1/2}',{'answer':'0.5'});"
        "print(round(1000*(time.process_time()-c)), 'ms CPU', round(1000*(time.perf_counter()-t)), 'ms wall', "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss//1024, 'MB', 'sympy' in sys.modules, d.score)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "verifiers")}
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    print("import and first verdict (sympy loaded, score last):", done.stdout.strip())


def accuracy() -> None:
    """Verdicts against labels: the undisputed rows of `math_dev.jsonl`, then our own rows."""
    from grpo_verifiers import BadGold, Outcome, build

    verifier = build("math")
    for name in ("math_dev.jsonl", "math_own.jsonl"):
        with (CASES.parent / name).open() as file:
            rows = [row for row in map(json.loads, file) if not row.get("debatable")]
        wrong = {0: 0, 1: 0}
        for row in rows:
            try:
                right = verifier.verify(row["response"], {"answer": row["gold"]}).outcome is Outcome.RIGHT
            except BadGold:
                right = False
            wrong[row["expected"]] += right != bool(row["expected"])
        positives = sum(row["expected"] for row in rows)
        print(
            f"{name}: {1 - sum(wrong.values()) / len(rows):.1%} of {len(rows)} as labelled; "
            f"false positives {wrong[0]} of {len(rows) - positives}, false negatives {wrong[1]} of {positives}"
        )
    verifier.close()


def worst_case() -> None:
    """The slowest hostile row, alone, and all of them at once from a thread."""
    from threading import Thread

    from grpo_verifiers import Sample, build

    with CASES.open() as file:
        rows = [row for row in map(json.loads, file) if row["kind"] in ("dos", "long_response")]
    verifier = build("math")
    verifier.verify("\\boxed{\\sin 2x}", {"answer": "2\\sin x\\cos x"})
    slowest = ("", 0.0)
    samples = []
    for row in rows:
        gold = verifier.compile({"answer": row["gold"]})
        samples.append(Sample(row["response"], gold))
        before = time.perf_counter()
        verifier.judge(samples[-1:])
        spent = time.perf_counter() - before
        if spent > slowest[1]:
            slowest = (row["id"], spent)
    print(f"worst of {len(rows)} hostile rows: {slowest[0]} {1000 * slowest[1]:.1f} ms wall")
    samples = (samples * 2)[:64]
    fresh = build("math")
    thread = Thread(target=fresh.judge, args=(samples,))
    before = time.perf_counter()
    thread.start()
    thread.join()
    print(f"{len(samples)} of them at once from a thread: {time.perf_counter() - before:.2f} s wall")
    verifier.close()


def main() -> None:
    """Run everything and print one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300)
    rows = parser.parse_args().rows
    import_cost()
    accuracy()
    math_verify = naive()
    sets = {"gsm8k": load("gsm8k_test.jsonl", "question", rows), "math500": load("math500.jsonl", "problem", rows)}
    print(
        f"{'data':16}{'naive/s':>10}{'ours/s':>10}{'ratio':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}  right naive, ours of n"
    )
    for name, rows_of in sets.items():
        for which, pairs in right_and_wrong(rows_of).items():
            slow, _, naive_right = timed(math_verify, pairs)
            best = min((timed(ours(), pairs) for _ in range(3)), key=lambda r: r[0])
            fast, each, right = best
            n = len(pairs)
            print(
                f"{name + ' ' + which:16}{n / slow:>10.0f}{n / fast:>10.0f}{slow / fast:>8.1f}{each[n // 2]:>9.3f}"
                f"{each[n * 99 // 100]:>9.3f}{each[-1]:>9.2f}  {naive_right}, {right} of {n}"
            )
    worst_case()


if __name__ == "__main__":
    main()
