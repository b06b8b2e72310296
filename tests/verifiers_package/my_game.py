"""Environments of several turns as users of the package `verifiers` write them."""

from typing import Any

from datasets import Dataset

import verifiers as vf


class Guess(vf.MultiTurnEnv):
    """Higher or lower; `numbers` of the row's `info` are what the model may see."""

    async def setup_state(self, state: Any) -> None:
        state["tries"] = 0

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        state["tries"] += 1
        said, secret = messages[-1]["content"], int(state["answer"])
        if said == "crash":
            raise vf.Error("no such move")
        if said == "bug":
            raise ZeroDivisionError("a bug")
        if said == str(secret):
            state["final_env_response"] = [{"role": "user", "content": "found"}]
            return state["final_env_response"]
        return [{"role": "user", "content": "higher" if int(said) < secret else "lower"}]


def right(completion: Any, answer: str) -> float:
    return float(any(message["content"] == answer for message in completion))


async def quick(state: Any) -> float:
    return 1.0 / state["tries"]


def fragile(state: Any) -> float:
    return 1.0 / (len(state["trajectory"]) - 1)


ROWS = [{"question": "a number up to 9", "answer": "7"}]


def load_environment(turns: int = 4, breaks: bool = False) -> vf.Environment:
    functions = [right, fragile if breaks else quick]
    rubric = vf.Rubric(funcs=functions, weights=[1.0, 0.5])
    return Guess(dataset=Dataset.from_list(ROWS), rubric=rubric, max_turns=turns, system_prompt="Guess.")


def single() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[right]))
