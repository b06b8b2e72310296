"""Verifier functions of a user, good and bad, for the tests of `python`."""

import asyncio
from typing import Any

from grpo_verifiers import Outcome, Verdict


def equal(completion: str, answer: str) -> bool:
    return completion.strip() == answer


def half(completion: str) -> float:
    return 0.5


async def slow_equal(completion: str, answer: str) -> bool:
    await asyncio.sleep(0)
    return completion == answer


def trl_style(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(c == a) for c, a in zip(completions, answer, strict=True)]


def two_scores(completions: list[str]) -> list[float]:
    return [1.0, 0.0]


def verdict(completion: str) -> Verdict:
    return Verdict(Outcome.RIGHT, 1.0, completion, "mine")


def a_dict(completion: str) -> dict[str, Any]:
    return {"score": 0.25, "answer": 7, "reason": "quarter"}


def echo(completion: str, row: dict[str, Any]) -> Any:
    return row["value"]


def none_without_digits(completion: str, answer: str) -> bool | None:
    return answer in completion if any(c.isdigit() for c in completion) else None


def wants_json(completion: str, answer: str) -> bool:
    import json

    return json.loads(completion)["x"] == answer


def always_none(completion: str) -> None:
    return None


def fragile(completion: str, answer: str) -> bool:
    return int(completion) == int(answer)


def broken(completion: str, answer: str) -> bool:
    raise RuntimeError("database is gone")


def loops_on_x(completion: str) -> bool:
    while completion == "x":
        pass
    return True


def always_loops(completion: str) -> bool:
    while True:
        pass


def no_completion(text: str) -> bool:
    return True


def inside_trainer(completions: list[str], trainer_state: Any) -> list[float]:
    return [1.0]


NOT_A_FUNCTION = 3


def eats(completion: str, numbers: list[int]) -> bool:
    return numbers.pop() == 3


def eats_the_row(completion: str, row: dict) -> bool:
    return row["numbers"].pop() == 3


def eats_lists(completions: list[str], numbers: list[list[int]], **_: object) -> list[float]:
    return [float(own.pop() == 3) for own in numbers]


async def eats_later(completion: str, numbers: list[int]) -> bool:
    return numbers.pop() == 3


def of_verl(completion: str, ground_truth: str) -> bool:
    return completion == ground_truth
