"""Reward functions as users bring them, good and bad, for the tests of `python`."""

import re
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np


def signed(completion: str, answer: str) -> float:
    if completion == "slow":
        while True:
            pass
    if completion == "boom":
        raise ValueError("no number")
    if completion == "?":
        return 0.0
    return 1.0 if completion == answer else -1.0


def doubled(completion: str, answer: str) -> float:
    return 2.0 if completion == answer else 0.5 if completion.isdigit() else 0.0


def ten(completion: str) -> int:
    return len(completion)


def named(completion: str) -> Any:
    made = {
        "bool": np.bool_(True),
        "float32": np.float32(0.5),
        "one": np.array([0.25]),
        "fraction": Fraction(1, 3),
        "decimal": Decimal("-2.5"),
        "int": 7,
        "nan": float("nan"),
        "inf": float("-inf"),
        "huge": 10**400,
        "text": "1.0",
        "complex": 1j,
        "list": [1.0],
        "array": np.array([1.0, 2.0]),
        "nan32": np.float32("nan"),
        "decimal_nan": Decimal("NaN"),
        "score_nan": {"score": float("nan")},
        "score_text": {"score": "0.5"},
        "dict": {"score": -3.0, "reason": "bad"},
        "no_answer": {"outcome": "no_answer"},
    }
    if completion == "torch":
        import torch

        return torch.tensor(1.5, requires_grad=True)
    return made.get(completion, 0.0)


def lists(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    print("called with", len(completions))
    if "boom" in completions:
        raise ValueError("boom is in it")
    return [float(len(completions))] * len(completions)


def of_group(completions: list[str], group: Any = None) -> list[float]:
    return [float(len(completions))] * len(completions)


def only_one(completions: list[str]) -> list[float]:
    return [1.0]


def arrays(completions: list[str]) -> Any:
    return np.array([float(len(c)) for c in completions])


def some_none(completions: list[str]) -> list[float | None]:
    return [None if c == "other" else 1.0 for c in completions]


def chat(completions: Any, **columns: Any) -> list[float]:
    return [1.0 if re.search("good", c[0]["content"]) else -1.0 for c in completions]


def chat_that_swallows(completions: Any, **columns: Any) -> list[float]:
    rewards = []
    for c in completions:
        try:
            rewards.append(1.0 if "good" in c[-1]["content"] else 0.5)
        except Exception:  # noqa: BLE001 - as users write them
            rewards.append(0.0)
    return rewards


def chat_loop(completions: Any, prompts: Any) -> list[float]:
    return [
        float(sum(len(m["content"]) for m in c if m["role"] == "assistant") + len(p[0]["content"]))
        for c, p in zip(completions, prompts, strict=True)
    ]


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
    return {"score": 1.0 if solution_str == ground_truth else -1.0, "acc": True, "pred": solution_str}


def compute_scores(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any) -> list[float]:
    return [float(s == g) for s, g in zip(solution_strs, ground_truths, strict=True)]


async def rubric(completion: Any, answer: str, state: Any, info: Any) -> float:
    return 1.0 if completion[-1]["content"] == answer and state["answer"] == answer and info["k"] == 1 else 0.0


def needs_parser(completion: Any, parser: Any) -> float:
    return 1.0


def of_tokens(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    return [-float(len(ids)) for ids in completion_ids]


async def waits(completion: str) -> float:
    import asyncio

    await asyncio.sleep(1.0)
    return 1.0


def waits_in_threads(completion: str) -> float:
    time.sleep(1.0)
    return 1.0


_calls: dict[str, int] = {}


async def flaky(completion: str) -> float:
    _calls[completion] = _calls.get(completion, 0) + 1
    if completion == "away" or (completion == "late" and _calls[completion] < 2):
        raise ConnectionError("no route")
    if completion == "bad":
        raise ValueError("cannot read it")
    return float(_calls[completion])


def logs(completions: list[str], log_metric: Any = None, log_extra: Any = None, **kwargs: Any) -> list[float]:
    log_metric("n", len(completions))
    log_extra("seen", [c.upper() for c in completions])
    return [1.0] * len(completions)


class Grader:
    def __call__(self, completion: str) -> float:
        return float(completion)


grader = Grader()
