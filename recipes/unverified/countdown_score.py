"""The reward of `countdown.yaml`: an expression over the given numbers, read without eval.

A verifier of one's own is a function like `score`: `completion`, then columns of the row by name; it returns a
score from 0 to 1.
"""

import ast
import re
from fractions import Fraction
from operator import add, mul, sub, truediv

OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv}
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def score(completion: str, numbers: list[int], target: int) -> float:
    """1 if the last <answer> makes the target and uses every number exactly once."""
    found = ANSWER.findall(completion)
    used: list[int] = []
    try:
        made = value(ast.parse(found[-1].strip()[:200], mode="eval").body, used)
    except (IndexError, SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return 0.0
    return float(made == target and sorted(used) == sorted(numbers))


def value(node: ast.expr, used: list[int]) -> Fraction:
    """The value of sums, differences, products and quotients of whole numbers; each number is noted in `used`."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        made: Fraction = OPERATORS[type(node.op)](value(node.left, used), value(node.right, used))
        return made
    raise ValueError("only + - * / on whole numbers")
