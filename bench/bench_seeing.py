"""What seeing costs: statistics, records and display of one step in CPU-milliseconds, and of one live frame.

    PYTHONPATH=.:verifiers python bench/bench_seeing.py

The bars (DESIGN paragraph 8): 20 ms a step, and 1 % of a step of 10 s, in which the live display paints at most 25 frames.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from grpo_cli.display.frame.frame import frame_lines
from grpo_cli.display.frame.sample import view_samples
from grpo_cli.display.plain import PlainDisplay
from grpo_cli.display.terminal.live import FRAME_S
from grpo_cli.display.terminal.painter import Painter
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.records import SampleRecord
from grpo_cli.statistics.step import step_stats
from grpo_verifiers.verdict import right, wrong
from tests.builders.display_state import full_state, run_state, step_metrics, view


def batch(prompts: int, group: int, tokens: int, verifiers: int) -> list[SampleRecord]:
    """Samples with completions of about four letters a token."""
    rng = random.Random(0)
    text = "<think>" + "so 12 + 7 = 19, " * (tokens // 4) + "</think>\\boxed{19}"
    samples = []
    for i in range(prompts * group):
        verdict = right("19", "equal", 0.001) if rng.random() < 0.4 else wrong(str(i % 5), "differs", 0.002)
        samples.append(
            SampleRecord(
                1, f"row{i // group}", i // group, "What is 12 + 7?" * 5, text, {"question": "What is 12 + 7?", "answer": "19"},
                {f"v{k}": verdict for k in range(verifiers)}, verdict.outcome, verdict.score, 0.5, tokens, False,
            )
        )  # fmt: skip
    return samples


def cpu_ms(work: Callable[[], object], repeat: int) -> float:
    """CPU-milliseconds of one call, the best of five rounds: others share the machine."""
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeat):
            work()
        rounds.append((time.process_time() - began) / repeat)
    return 1000 * min(rounds)


def main() -> None:
    print(
        "| one step | statistics | samples/*.jsonl | metrics.jsonl | view | plain line | sum, CPU-ms |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for prompts, group, tokens, verifiers in ((32, 8, 26, 1), (16, 8, 512, 2), (64, 16, 512, 2)):
        samples = batch(prompts, group, tokens, verifiers)
        with tempfile.TemporaryDirectory() as place:
            folder = RunFolder.create(place, "bench", "", {})
            metrics = {"step": 1, **step_stats(samples, group, (1, group))}
            plain = PlainDisplay(io.StringIO())
            costs = [
                cpu_ms(lambda s=samples, g=group: step_stats(s, g, (1, g)), 5),
                cpu_ms(lambda f=folder, s=samples: f.write_samples(1, s), 5),
                cpu_ms(lambda f=folder, m=metrics: f.write_metrics(m), 20),
                cpu_ms(lambda s=samples: view_samples(s), 20),
                cpu_ms(lambda p=plain, m=metrics: p.step(m), 20),
            ]
        shown = " | ".join(f"{cost:.2f}" for cost in [*costs, sum(costs)])
        print(f"| {prompts} x {group} samples of {tokens} tokens, {verifiers} verifiers | {shown} |")
    state = full_state()
    print("\n| one live frame | drawing, CPU-ms | with painting | share of a core at full rate |\n|---|---:|---:|---:|")
    for width, height in ((80, 24), (100, 30), (200, 60)):
        painter = Painter(io.StringIO(), color=True)
        painter.open()
        draw = cpu_ms(lambda w=width, h=height: frame_lines(state, w, h), 50)
        keeper = run_state(240, view())
        both = cpu_ms(
            lambda p=painter, w=width, h=height, k=keeper: p.paint(frame_lines(k.snapshot(0.0), w, h), (w, h)), 50
        )
        painter.close()
        print(f"| {width} x {height} | {draw:.2f} | {both:.2f} | {both / FRAME_S / 10:.2f} % |")
    keeper = run_state(1)
    print(f"\nkeeping a step for the frame: {cpu_ms(lambda: keeper.step(step_metrics(5), None), 100):.3f} CPU-ms")


if __name__ == "__main__":
    main()
