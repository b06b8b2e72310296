"""A single-turn environment and rubric functions as users of the package `verifiers` write them."""

from typing import Any

from datasets import Dataset

import verifiers as vf


def load_environment(bonus: float = 0.5, turns: int = 1) -> vf.Environment:
    parser = vf.XMLParser(["think", "answer"], answer_field="answer")

    async def correct(completion: Any, answer: str, parser: Any, **kwargs: Any) -> float:
        return 1.0 if parser.parse_answer(completion) == answer else -1.0

    def brief(prompt: Any, completion: Any, state: Any, info: Any) -> float:
        assert prompt[0]["role"] == "system" and state["completion"] is completion
        return float(info["most"] >= len(completion[-1]["content"]))

    def seen(completion: Any) -> float:
        return 7.0

    rubric = vf.Rubric(funcs=[correct, brief, seen], weights=[1.0, bonus, 0.0], parser=parser)
    rows = Dataset.from_list([{"question": "1+1", "answer": "2"}])
    if turns > 1:
        return Game(dataset=rows, rubric=rubric, parser=parser, max_turns=turns)
    return vf.SingleTurnEnv(dataset=rows, system_prompt="Be brief.", parser=parser, rubric=rubric)


class Game(vf.MultiTurnEnv):
    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        return []


def bare(completion: Any, answer: str, parser: Any, state: Any) -> float:
    assert state["answer"] == answer
    return float(parser.parse_answer(completion) == answer)
