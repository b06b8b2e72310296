"""One made-up run, consistent with itself, for the frame tests."""

from __future__ import annotations

from typing import Any

from grpo_cli.display.frame.sample import GroupView, SampleLine, SampleView
from grpo_cli.display.frame.state import FrameState, RunState
from grpo_cli.run.info import RewardSource, RunInfo
from grpo_verifiers.verdict import Outcome

BEGAN = 1795782604.0
INFO = RunInfo(
    run="1127-gsm8k-k3f9", recipe="recipes/gsm8k.yaml", sha="9f2c1e", model="Qwen2.5-0.5B", folder="runs/1127-gsm8k-k3f9",
    log="runs/1127-gsm8k-k3f9/train.log", device="1x H100 80G", steps=500, prompts=16, group=8, max_tokens=512, seed=17,
    sources=(RewardSource("math", 1.0, True), RewardSource("format", 0.1)),
)  # fmt: skip
HISTOGRAM = (3, 1, 1, 1, 2, 1, 2, 1, 4)


def step_metrics(step: int) -> dict[str, Any]:
    """Metrics that move as those of a healthy run do; step 142 is the one of the pictures."""
    done = step / 142
    metrics: dict[str, Any] = {
        "step": step, "samples": 128, "tokens": 27136, "reward/total/mean": 0.211 + 0.401 * done, "reward/math/mean": 0.156 + 0.391 * done,
        "reward/format/mean": min(0.648, 0.55 + 0.3 * done), "group/count": 16, "group/size": 8, "group/all_wrong": 3, "group/mixed": 9,
        "group/all_right": 4, "group/no_verdict": 0, "group/signal": 0.9 - 0.34 * done, "reward/std_in_group": 0.31, "pass@1": 0.547,
        "pass@8": 0.8125, "length/mean": 212.0, "length/p95": 388.0, "length/right": 188.0, "length/wrong": 241.0, "truncated": 0.0156,
        "no_answer": 0.039, "think": 0.1 + 0.5 * done, "unique_answers": 0.41, "entropy": 0.71 - 0.37 * done, "kl": 0.0041 * done,
        "clip/total": 0.008, "grad_norm": 0.42 + 0.1 * (step % 5 == 0), "lr": 9.1e-7, "loss": 0.013, "tokens_per_s": 1420.0,
        "memory/peak_gib": 71.3, "memory/total_gib": 80.0, "time/generate": 19.1, "time/verify": 2.2, "time/update": 9.1,
        "time/step": 30.4, "eta_s": 10860.0,
    }  # fmt: skip
    metrics |= {f"group/hist/{k}": count for k, count in enumerate(HISTOGRAM)}
    for name, counts in (("math", (128, 70, 53, 5, 0, 0, 0.041)), ("format", (128, 83, 45, 0, 0, 0, 0.001))):
        keys = ("calls", "right", "wrong", "no_answer", "error", "over_limit", "p95_s")
        metrics |= {f"verify/{name}/{key}": count for key, count in zip(keys, counts, strict=True)}
    return metrics


def view(completion: str = "48/2 = 24 in May, so 48 + 24 = 72 clips in total. The answer is \\boxed{72}") -> SampleView:
    question = (
        "Natalia sold clips to 48 of her friends in April, and then she sold half as many in May. How many in all?"
    )
    lines = (
        SampleLine(Outcome.RIGHT, 0.77, 1.1, completion),
        SampleLine(Outcome.WRONG, -1.29, 0.0, "Half of 48 is 24, so the answer is \\boxed{24}"),
    )
    return SampleView(142, (GroupView("3317", question, "72", 5, 8, lines),))


def run_state(steps: int = 142, view: SampleView | None = None) -> RunState:
    """A run after this many steps, in the middle of generating the next."""
    state = RunState(BEGAN)
    state.set(info=INFO)
    for step in range(1, steps + 1):
        state.step(step_metrics(step), view)
        if step == 1:
            state.evaluated({"step": 0, "eval/pass@1": 0.203, "eval/pass@1/half": 0.049, "eval/n": 256})
        if step == 125:
            state.evaluated({"step": 125, "eval/pass@1": 0.488, "eval/pass@1/half": 0.061, "eval/n": 256})
            state.note("good", "checkpoint saved  runs/1127-gsm8k-k3f9/checkpoints/step-000125", "", BEGAN + 3800)
        if step == 131:
            state.note("warn", "4 of 16 groups all right for 10 steps", "consider harder prompts  [W12]", BEGAN + 3980)
    state.act("generate", 96, 128, BEGAN + 4300)
    return state


def full_state() -> FrameState:
    """A run in its middle whose keys are read, as in a terminal."""
    state = run_state(view=view())
    state.set(keys=True)
    return state.snapshot(BEGAN + 4357)
