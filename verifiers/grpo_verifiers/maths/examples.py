"""Answers that show where the maths verifier draws its lines; `grpo explain math` prints today's verdicts beside them."""

from __future__ import annotations

from typing import Any, NamedTuple


class MathExample(NamedTuple):
    """A gold, a boxed answer or (`whole`) a whole completion, what it shows, and options other than the defaults."""

    gold: str
    answer: str
    shows: str
    options: dict[str, Any] | None = None
    whole: bool = False


LINES: tuple[MathExample, ...] = (
    MathExample("\\frac{1}{2}", "0.5", "equal in value"),
    MathExample("\\frac{2}{3}", "0.667", "an exact gold needs an exact answer"),
    MathExample("\\frac{2}{3}", "0.667", "tolerance of one part in a thousand", {"tolerance": 1e-3}),
    MathExample("3.14", "\\pi", "a decimal gold of three digits accepts what it rounds"),
    MathExample("3.14", "\\pi", "unless told not to", {"round_gold": False}),
    MathExample("\\sqrt{5+2\\sqrt{6}}", "\\sqrt{2}+\\sqrt{3}", "a nested root"),
    MathExample("2\\sin x\\cos x", "\\sin 2x", "an identity, proved by computer algebra"),
    MathExample("1.2\\times 10^{-7}", "0", "a small number is not zero"),
    MathExample("50\\%", "0.5", "the value of a percentage"),
    MathExample("50", "50\\%", "the number before the sign"),
    MathExample("50", "50\\%", "only the value counts", {"percent": "value"}),
    MathExample("1", "100", "a factor of 100 without a sign"),
    MathExample("5\\text{ cm}", "5", "a unit left off"),
    MathExample("5\\text{ cm}", "5\\text{ m}", "a unit contradicted"),
    MathExample("24\\text{ inches}", "2\\text{ feet}", "units converted on request", {"units": "convert"}),
    MathExample("1,2", "2, 1", "a list in any order"),
    MathExample("1,2", "2, 1", "lists in order on request", {"order": "kept"}),
    MathExample("(2,1)", "(1,2)", "a tuple in its order"),
    MathExample("\\{1,2,3\\}", "1,3,2", "set braces left off"),
    MathExample("(3,\\infty)", "x > 3", "interval and inequality are one set"),
    MathExample("[1,2)", "[1,2]", "a closed end"),
    MathExample("\\pm 3", "3, -3", "plus-minus written out"),
    MathExample("2x+4y-3=0", "y = -\\frac{1}{2}x + \\frac{3}{4}", "an equation solved"),
    MathExample("y = 2x+1", "2x+1", "the left side left off"),
    MathExample("y=5", "x=5", "another variable"),
    MathExample("2220_5", "2220_6", "another base"),
    MathExample("5", "3 = 5", "a false equation that ends in the gold"),
    MathExample("5", "5 \\text{ or } 6", "a hedge"),
    MathExample("5", "\\{4,5,6\\}", "several candidates"),
    MathExample("5", "5x", "a free variable"),
    MathExample("5", "9^{9^{9}}", "a number too large to write down"),
    MathExample("B", "\\textbf{(B)}\\ 12", "an option with its text"),
    MathExample("\\text{no solution}", "\\emptyset", "words and the empty set"),
    MathExample("5", "\\boxed{3}, no: \\boxed{5}", "the last box counts", whole=True),
    MathExample("5", "\\boxed{5} or \\boxed{6}", "boxes joined by or", whole=True),
    MathExample("2,3", "\\boxed{2} and \\boxed{3}", "boxes joined by and: one list", whole=True),
    MathExample("5", "<think>\\boxed{5}", "a box inside unfinished thinking", whole=True),
    MathExample("5", "\\boxed{5", "a box that is never closed", whole=True),
    MathExample("5", "The answer is 5.", "an answer line", whole=True),
    MathExample("5", "The answer is 5.", "boxes only", {"extract": "boxed"}, whole=True),
    MathExample("5", "2 + 3 gives 5", "a last number is never guessed", whole=True),
)
