"""Run in an environment of its own by `make test-verifiers`: environments of the real package `verifiers` as a `python` verifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo_verifiers import BadOption, Sample, build

HERE = str(Path(__file__).parent)
ROW = {"answer": "2", "info": '{"most": 40}'}
RIGHT, WRONG = "<think>x</think>\n<answer>2</answer>", "<think>x</think>\n<answer>3</answer>"


def scores(function: str, texts: list[str], **options: Any) -> list[float | None]:
    made = build("python", function=function, path=[HERE], workers=1, memory_mb=4096, **options)
    try:
        gold = made.compile(ROW)
        found = made.judge([Sample(text, gold, "1+1") for text in texts])
        print(function, options, [(v.outcome.value, v.score, v.detail) for v in found])
        return [v.score for v in found]
    finally:
        made.close()


def main() -> None:
    long = RIGHT.replace("x", "x" * 60)
    assert scores("my_environment:load_environment", [RIGHT, WRONG, long]) == [1.5, -0.5, 1.0]
    assert scores("my_environment:load_environment", [RIGHT], args={"bonus": 2.0}) == [3.0]
    assert scores("my_environment:bare", ["2", "3"]) == [1.0, 0.0]
    for args, says in (({"turns": 3}, "single-turn"), ({"no_such": 1}, "option `args`")):
        try:
            scores("my_environment:load_environment", [RIGHT], args=args)
        except BadOption as err:
            assert says in str(err), err
        else:
            raise AssertionError(args)
    print("ok")


if __name__ == "__main__":
    main()
