"""Answers that show where the maths verifier draws its lines; `grpo explain math` prints today's verdicts beside them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Line(NamedTuple):
    """A gold, a boxed answer or (`whole`) a whole completion, what it shows, and options other than the defaults."""

    gold: str
    answer: str
    shows: str
    options: dict[str, Any] | None = None
    whole: bool = False


LINES: tuple[Line, ...] = (
    Line("\\frac{1}{2}", "0.5", "equal in value"),
    Line("\\frac{2}{3}", "0.667", "an exact gold needs an exact answer"),
    Line("\\frac{2}{3}", "0.667", "tolerance of one part in a thousand", {"tolerance": 1e-3}),
    Line("3.14", "\\pi", "a decimal gold of three digits accepts what it rounds"),
    Line("3.14", "\\pi", "unless told not to", {"round_gold": False}),
    Line("\\sqrt{5+2\\sqrt{6}}", "\\sqrt{2}+\\sqrt{3}", "a nested root"),
    Line("2\\sin x\\cos x", "\\sin 2x", "an identity, proved by computer algebra"),
    Line("1.2\\times 10^{-7}", "0", "a small number is not zero"),
    Line("50\\%", "0.5", "the value of a percentage"),
    Line("50", "50\\%", "the number before the sign"),
    Line("50", "50\\%", "only the value counts", {"percent": "value"}),
    Line("1", "100", "a factor of 100 without a sign"),
    Line("5\\text{ cm}", "5", "a unit left off"),
    Line("5\\text{ cm}", "5\\text{ m}", "a unit contradicted"),
    Line("24\\text{ inches}", "2\\text{ feet}", "units converted on request", {"units": "convert"}),
    Line("1,2", "2, 1", "a list in any order"),
    Line("1,2", "2, 1", "lists in order on request", {"order": "kept"}),
    Line("(2,1)", "(1,2)", "a tuple in its order"),
    Line("\\{1,2,3\\}", "1,3,2", "set braces left off"),
    Line("(3,\\infty)", "x > 3", "interval and inequality are one set"),
    Line("[1,2)", "[1,2]", "a closed end"),
    Line("\\pm 3", "3, -3", "plus-minus written out"),
    Line("2x+4y-3=0", "y = -\\frac{1}{2}x + \\frac{3}{4}", "an equation solved"),
    Line("y = 2x+1", "2x+1", "the left side left off"),
    Line("y=5", "x=5", "another variable"),
    Line("2220_5", "2220_6", "another base"),
    Line("5", "3 = 5", "a false equation that ends in the gold"),
    Line("5", "5 \\text{ or } 6", "a hedge"),
    Line("5", "\\{4,5,6\\}", "several candidates"),
    Line("5", "5x", "a free variable"),
    Line("5", "9^{9^{9}}", "a number too large to write down"),
    Line("B", "\\textbf{(B)}\\ 12", "an option with its text"),
    Line("\\text{no solution}", "\\emptyset", "words and the empty set"),
    Line("5", "\\boxed{3}, no: \\boxed{5}", "the last box counts", whole=True),
    Line("5", "\\boxed{5} or \\boxed{6}", "boxes joined by or", whole=True),
    Line("2,3", "\\boxed{2} and \\boxed{3}", "boxes joined by and: one list", whole=True),
    Line("5", "<think>\\boxed{5}", "a box inside unfinished thinking", whole=True),
    Line("5", "\\boxed{5", "a box that is never closed", whole=True),
    Line("5", "The answer is 5.", "an answer line", whole=True),
    Line("5", "The answer is 5.", "boxes only", {"extract": "boxed"}, whole=True),
    Line("5", "2 + 3 gives 5", "a last number is never guessed", whole=True),
)
