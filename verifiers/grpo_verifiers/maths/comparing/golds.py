"""Gold answers, compiled once per row. A gold that is empty, or holds nothing that can be compared, is a data error.

How this works: `compile_gold` takes the accepted texts of a row, finds the answer inside a whole solution, reads it and
notes what the cheap tiers need: its integer, its option letter or letters, whether a text stands beside the letter.
The first part finds option letters in answers and golds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.comparing.scalars import value_of
from grpo_verifiers.maths.comparing.values import Undefined
from grpo_verifiers.maths.extract import extract
from grpo_verifiers.maths.reading.answers import NOT_STATED, Answer, plain, read_answer
from grpo_verifiers.text import accepted
from grpo_verifiers.verifier import BadGold


def option_of(text: str) -> str:
    """The one option letter (upper case) this answer names, or ``."""
    bold = patterns.BOLD_OPTION.fullmatch(text)
    # `(A) 3 or (B) 4` names two: what follows a letter must not name another one, or deny it
    if bold is not None and not patterns.OTHER.search(plain(bold[2])):
        return bold[1]
    read = plain(text)
    match = patterns.ALONE.fullmatch(read) or patterns.IS_RIGHT.fullmatch(read)
    if match is not None:
        return match[1].upper()
    match = patterns.WITH_TEXT.fullmatch(read)
    if match is not None and not patterns.OTHER.search(match[3]):
        return match[1] or match[2]
    return ""


def option_and_text(gold: str) -> tuple[str, str]:
    """Letter and text of a gold that gives both (`(B) 12`), or two empty strings."""
    match = patterns.GOLD_OPTION.fullmatch(gold)
    return (match[1], match[3]) if match else ("", "")


def without_letter(text: str) -> str:
    """The text of `(C) 12`, `C. 12` or `C (12 m)` as an answer to a gold that has no letter, or `` where another letter may follow."""
    upright = patterns.ONE_TEXT.fullmatch(text)
    found = patterns.LETTER_THEN_TEXT.fullmatch(upright[1] if upright else text)
    if found is None or patterns.OPTION_ALONE.search(found[1]) or patterns.OTHER.search(found[1]):
        return ""
    inside = patterns.IN_BRACKETS.fullmatch(found[1])
    if inside and text[0] == "(":
        return ""  # `(C) (12)` may be a product
    return inside[1] if inside else found[1]


def has_options(text: str) -> bool:
    """Whether a text holds a capital that may be an option's letter."""
    return patterns.OPTION_ALONE.search(text) is not None


def options_of(text: str) -> str:
    """Several option letters, sorted, or ``: `B, D` and `D and B` are `BD`; run together they keep their order."""
    read = plain(text)
    # letters without separators may be a sequence, whose order counts
    if patterns.RUN_OF_OPTIONS.fullmatch(read):
        return read.strip("()")
    if patterns.SEVERAL_LETTERS.fullmatch(read):
        return "".join(sorted(set(patterns.OPTION.findall(read.replace("and", "")))))
    return ""


@dataclass(frozen=True, slots=True)
class MathGold:
    """One or more accepted answers of a row, read and ready. Picklable, and shared by the samples of a group."""

    texts: tuple[str, ...]
    read: tuple[Answer, ...]
    integer: int | None = None
    letter: str = ""
    letters: str = ""
    has_text: bool = False

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What the texts were read as; whole numbers are read only when an answer needs it."""
        return self.read or (_read_once(self.texts[0]),)

    @property
    def is_several(self) -> bool:
        """Whether the gold is a list or has parts."""
        return bool(self.read) and (bool(self.read[0].parts) or (self.read[0].tree or ("",))[0] == "list")


def compile_gold(value: object) -> MathGold:
    """The gold of a row from its `answer` field: text, a number, or a list of accepted answers.

    Raises:
        BadGold: there is nothing to compare with.
    """
    if isinstance(value, str) and patterns.GOLD_INTEGER.fullmatch(value):
        return MathGold((value,), (), integer=int(value))
    if isinstance(value, str) and "$ OR $" in value:
        value = value.replace("$ OR $", "$\0$").split("\0")  # spellings of one answer
    if isinstance(value, list | tuple):
        if not value:
            raise BadGold("the gold answer is an empty list")
        golds = [compile_gold(part) for part in value]
        if len(golds) == 1:
            return golds[0]
        return MathGold(tuple(g.texts[0] for g in golds), tuple(a for g in golds for a in g.answers))
    return _compile_text(gold_text(value))


def gold_text(value: object) -> str:
    """The text of a single gold.

    Raises:
        BadGold: it is missing, empty, or of a type that is no answer.
    """
    if value is None:
        raise BadGold("the gold answer is missing")
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise BadGold(f"the gold answer is a {type(value).__name__}, not text or a number")
    text = str(value).strip()
    if text in ("nan", "inf", "-inf") and not isinstance(value, str):
        raise BadGold("the gold answer is not a finite number")
    if not text:
        raise BadGold("the gold answer is empty")
    if len(text) > 4000:
        text = _inner(text)
        if len(text) > 4000:
            raise BadGold(f"the gold answer has {len(text)} characters, more than 4000")
    return _inner(text)


def own_text(value: object, gold: MathGold) -> str:
    """What an answer in a box would repeat of a gold as the row has it, for the audit of golds."""
    text = str(accepted(value)[0]).strip()
    is_solution = len(text) > 4000 or any(mark in text for mark in ("boxed", "fbox", "####", "<answer>"))
    return gold.texts[0] if is_solution else text


def _inner(text: str) -> str:
    """The answer inside a gold that is a whole solution."""
    if "boxed" in text or "fbox" in text or "####" in text or "<answer>" in text:
        found = extract(text)
        if len(found.texts) == 1 and found.texts[0].strip():
            return found.texts[0].strip()
        if "\\boxed" in text or "####" in text:
            raise BadGold(f"no answer in the gold: {found.reason or 'several answers'}")
    label = patterns.GOLD_LABEL.match(text)
    if label and text[label.end() :].strip():
        text = text[label.end() :].strip()
    if "$" in text and "\\$" not in text and patterns.THREE_LETTERS.search(patterns.FORMULA.sub("", text)):
        said = patterns.GOLD_SAID.fullmatch(text)
        if said is not None and not NOT_STATED & set(said[1].lower().split()):
            return said[2].strip()
    return text


@lru_cache(maxsize=20_000)
def _compile_text(text: str) -> MathGold:
    if patterns.GOLD_INTEGER.fullmatch(text):  # of a text that had something around it
        return MathGold((text,), (), integer=int(text))
    answer = read_answer(text)
    if not answer.text or (answer.tokens.strip(" .,;:?!-+=*/\\(){}[]|_^'") == "" and answer.tree is None):
        raise BadGold(f"the gold answer `{text[:40]}` says nothing that could be compared")
    bare = answer.text.replace("\\{", "").replace("\\}", "")
    if answer.tree is None and bare.count("{") != bare.count("}"):
        raise BadGold(f"the gold answer `{text[:40]}` cannot be read: its braces do not match")
    if answer.tree is not None and answer.tree[0] == "/":
        try:
            value_of(answer.tree)
        except Undefined as err:
            raise BadGold(f"the gold answer `{text[:40]}` has no value") from err
    if patterns.OPTION.search(answer.text) is None:
        return MathGold((text,), (answer,))
    letter = patterns.LETTER.fullmatch(answer.text)
    letters = ""
    if not letter:
        bare = patterns.UNTEXT.sub("", answer.text).strip()
        if patterns.GOLD_LETTERS.fullmatch(bare):
            found = patterns.OPTION.findall(bare.replace("and", ""))
            # letters in their order and each once: `BDA` is a word or a name, no set of options
            if found == sorted(set(found)):
                letters = "".join(found)
        option, rest = option_and_text(answer.text)
        # another letter in the text would make it a list of options, not one of them
        if option and not patterns.OTHER_OPTION.search(rest):
            return MathGold((text,), (read_answer(rest),), letter=option, has_text=True)
    return MathGold((text,), (answer,), letter=letter[1] if letter else "", letters=letters)


_read_once = lru_cache(maxsize=20_000)(read_answer)
