"""Options of the maths verifier. Defaults follow one rule: never pay for a wrong answer to save a right one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from grpo_verifiers.verifier import BadOption


@dataclass(frozen=True, slots=True)
class MathOptions:
    """What counts as the answer and what counts as equal."""

    extract: Literal["boxed", "answer_line", "last_box_or_line"] = "last_box_or_line"
    r"""Where the answer is looked for, always after the thinking. `boxed`: the last `\boxed{}` only.
    `answer_line`: `<answer>`, `####` or an "answer is" line only. `last_box_or_line`: the last box, without one the line.
    The default marks no answer that was clearly stated as missing; a bare last number is never guessed."""

    mark: str = ""
    """What a line of its own begins with that gives the answer: `A:`, `Final answer:`, `<SOLUTION>` (up to `</SOLUTION>`).
    The last such line comes before boxes and other lines; a completion without one is read as without this option."""

    units: Literal["agree", "ignore", "convert"] = "agree"
    """`agree`: a unit may be missing on either side, two units must be the same one, because `5 m` is not `5 cm`.
    `convert`: 2 feet equal 24 inches. `ignore`: units are dropped."""

    percent: Literal["both", "value", "sign"] = "both"
    """How `50%` meets a number without the sign. `value`: it is 0.5. `sign`: it is 50. `both` accepts either, as most
    data sets leave open which one was asked, but `0.3%` is never 0.3: below one the number alone says a hundred times as
    much. Of 106 labelled answers with a sign `both` judges none wrongly, `value` refuses 10 right ones, `sign` refuses 28
    and pays 7 wrong ones. A factor of 100 without any sign is always wrong."""

    tolerance: float = 0.0
    """Largest relative error of a decimal answer. 0: an exact gold needs an exact answer, whatever the digits."""

    round_gold: bool = True
    """A decimal gold of three or more significant digits accepts the exact value it is a rounding of (3.14 and pi)."""

    order: Literal["auto", "kept", "free"] = "auto"
    """`auto`: `1,2` and sets come in any order, tuples in theirs. `kept`: lists too must keep their order.
    `free`: tuples may come in any order as well."""

    max_chars: int = 4000
    """Longest answer that is read; a longer one is right only if it is the gold's own text. Keeps the cost bounded."""

    seconds: float = 0.5
    """CPU seconds one proof may take in the child process. Few answers need the child at all, and most proofs take a
    hundredth of a second. Without a proof in time there is no verdict, never a wrong one."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            allowed = get_args(hints[field.name])
            if allowed and value not in allowed:
                raise BadOption(field.name, f"`{field.name}` must be one of {', '.join(allowed)}, not `{value}`")
        if not isinstance(self.tolerance, int | float) or not 0.0 <= self.tolerance < 1.0:
            raise BadOption("tolerance", f"`tolerance` must be in [0, 1), not `{self.tolerance}`")
        if not isinstance(self.mark, str) or self.mark != self.mark.strip() or "\n" in self.mark:
            raise BadOption("mark", "`mark` must be one line of text without blanks round it")
        if not isinstance(self.max_chars, int) or self.max_chars < 1:
            raise BadOption("max_chars", f"`max_chars` must be a positive whole number, not `{self.max_chars}`")
        if not isinstance(self.seconds, int | float) or not 0.0 < self.seconds <= 60.0:
            raise BadOption("seconds", f"`seconds` must be in (0, 60], not `{self.seconds}`")
