"""`choice`: multiple choice by letter, by number or by the option's own words.

How this works: the row lists its options in the order in which the prompt showed them (column `choices` or `options`), and
`compile` finds the letters of the gold. `_named` reads which options a stated answer names: a letter, the words of one option, a
letter with its words, or several letters. A letter and words that name different options are a contradiction, and wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from grpo_verifiers.answers import AnswerVerifier, Example, Where, find_answer
from grpo_verifiers.text import accepted, normal, unwrapped
from grpo_verifiers.verdict import Verdict, no_answer, right, wrong
from grpo_verifiers.verifier import BadGold, Sample

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER = re.compile(
    r"\A[\s*_$\"'`]*+(?:(?:option|choice|answer)\s*+:?\s*+)?[(\[{]?\s*+([A-Za-z])\s*+[)\]}]?[\s*_$\"'`.:)]*+", re.I
)
_LABELLED = re.compile(
    r"\A[\s*_$\"'`]*+(?:(?:option|choice)\s++)?(?:[(\[]([A-Za-z])[)\]]|([A-Za-z])\s*[).:\-–—])[\s*_$\"'`.:]*(\S.*)",
    re.I | re.S,
)
_DOUBT = re.compile(
    r"(?:^|[\s(\[])[A-Za-z][).:]|^\(?[A-Z]\)?$|\b(?:not|or|isn't|never|neither|either|maybe|wrong)\b", re.I
)
_MANY = re.compile(r"(?:(?<!\s)\s++)?(?:,|;|/|&|\band\b|\bor\b)\s*+", re.I)
_OPTION_LIKE = re.compile(
    r"^\W*+(?:(?<=\\)text\w*+\s*+\{[\s(\[]*+)?(?:(?:option|choice)\b|[A-Za-z](?:\s*+[)\].:,;/–—}]|\W*+$))|\b(?:or|and)\b",
    re.I,
)
"""A box that holds options. If it is wrong or contradicts itself, a later line does not replace it."""
_SAID = re.compile(r"\b(?:answer|option|choice)\b\s*+(?:is|:|=)*+\s*+(.{1,400})", re.I)


@dataclass(frozen=True)
class ChoiceOptions:
    """Options of `choice`."""

    extract: Where = "box_or_line"
    """Where the answer is looked for; a completion that is nothing but a letter or an option counts in any case."""
    words: bool = True
    """Accept the option's own words; `false` takes letters only."""
    numbers: bool = False
    """Accept 1, 2, 3 for A, B, C."""


class ChoiceGold(NamedTuple):
    """Letters that must be named, and the normalised words of every option by letter."""

    letters: frozenset[str]
    words: dict[str, str]


class ChoiceVerifier(AnswerVerifier):
    """Right where exactly the gold's option (or options) is named."""

    Options: ClassVar[type] = ChoiceOptions
    options: ChoiceOptions

    def compile(self, row: Mapping[str, Any]) -> ChoiceGold:
        """The gold's letters, found by letter, position in the list, or words.

        Raises:
            BadGold: no answer, no list of choices, or an answer that is none of them.
        """
        words = _choices(row)
        golds = accepted(row.get("answer"))
        letters = frozenset(_gold_letter(one, words) for one in golds)
        if not golds:
            raise BadGold("no answer")
        return ChoiceGold(letters, words)

    def judge_one(self, sample: Sample) -> Verdict:
        """Name the options of the stated answer, and compare."""
        found = find_answer(sample.turn, self.options.extract)
        texts = found.texts
        if not texts:
            bare = find_answer(sample.turn, "whole").texts
            whole = bare[0] if bare and len(bare[0]) <= 300 else ""
            texts = (whole,) if whole and self._named(whole, sample.gold) else ()
            if not texts and whole and (said := _SAID.search(whole)):
                texts = (said[1],)
        if not texts:
            return no_answer(found.reason or "no_answer")
        shown = " or ".join(texts)[:200]
        if len(texts) > 1 and len({self._named(text, sample.gold) for text in texts}) > 1:
            return wrong(shown, "hedge")
        named = self._named(texts[0], sample.gold)
        if not named and self.options.extract == "box_or_line" and not _OPTION_LIKE.search(texts[-1]):
            # the box held a formula of the working: the last line that announces an answer counts, or a last line that
            # consists only of an option; if two such lines disagree, neither counts
            lines = find_answer(sample.turn, "answer_line").texts or find_answer(sample.turn, "last_line").texts
            other = {letters for text in lines if (letters := self._named(text, sample.gold))}
            named = other.pop() if len(other) == 1 else named
        if not named:
            return wrong(shown, "no_such_option")
        if named == sample.gold.letters:
            return right(", ".join(sorted(named)), "option")
        return wrong(", ".join(sorted(named)), "other_option" if len(named) == 1 else "several_options")

    def _named(self, text: str, gold: ChoiceGold) -> frozenset[str]:
        """The options a text names; empty where it names none, or contradicts itself."""
        text = " ".join(unwrapped(text[:2000]).split())
        known = set(gold.words) or set(LETTERS)
        one = self._letter(text, known)
        if one:
            return frozenset([one])
        if self.options.words:
            form = normal(text)
            same = [letter for letter, words in gold.words.items() if words and words == form]
            if len(same) == 1 and same[0]:
                return frozenset(same)
        labelled = _LABELLED.fullmatch(text)
        if labelled and (letter := (labelled[1] or labelled[2]).upper()) in known:
            # a letter with the words of its option, or with words that explain and name no other option
            form = normal(labelled[3])
            others = [words for other, words in gold.words.items() if other != letter and words]
            is_other = any(re.search(rf"(?<!\w){re.escape(words)}(?!\w)", form) for words in others)
            is_own = form == gold.words.get(letter) or not (is_other or _DOUBT.search(labelled[3]))
            return frozenset([letter] if is_own else [])
        parts = [part for part in _MANY.split(text) if part]
        letters = [self._letter(part, known) for part in parts] if 1 < len(parts) <= 26 else []
        return frozenset(letters if all(letters) else [])

    def _letter(self, text: str, known: set[str]) -> str:
        match = _LETTER.fullmatch(text)
        if match and match[1].upper() in known:
            return match[1].upper()
        digits = text.strip(" ().")
        if digits in known:  # labels that are no letters
            return digits
        if self.options.numbers and digits.isascii() and digits.isdigit() and 1 <= int(digits[:3]) <= 26:
            letter = LETTERS[int(digits[:3]) - 1]
            return letter if letter in known else ""
        return ""

    def gold_text(self, row: Mapping[str, Any]) -> str:
        """The gold's letters in a box."""
        return f"\\boxed{{{', '.join(sorted(self.compile(row).letters))}}}"

    @classmethod
    def examples(cls) -> list[Example]:
        row = {"answer": "B", "choices": ["Paris", "Rome", "none of these"]}
        return [
            Example("The answer is (B).", row, "by letter"),
            Example("\\boxed{Rome}", row, "by the option's words"),
            Example("\\boxed{B. Paris}", row, "letter and words contradict each other"),
            Example("\\boxed{A or B}", row, "two options are no answer"),
        ]


def _choices(row: Mapping[str, Any]) -> dict[str, str]:
    value = row.get("choices", row.get("options"))
    if value is None:
        return {}
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):  # ARC's {"text": […], "label": […]}
        value = dict(zip(value.get("label") or LETTERS, value["text"], strict=False))
    if isinstance(value, list):
        value = dict(zip(LETTERS, value, strict=False)) if len(value) <= len(LETTERS) else None
    if not isinstance(value, Mapping) or len(value) < 2:
        raise BadGold("`choices` must be a list of two or more options, or a mapping of letters to options")
    out = {}
    for letter, words in value.items():  # remove letters that are written in front of options
        text, name = str(words), str(letter)
        label = re.match(rf"\A\s*+[(\[]?{re.escape(name)}\s*+[)\].:]\s*+(?=\S)", text, re.I)
        out[name.strip().upper()] = normal(text[label.end() :] if label else text)
    return out


def _gold_letter(gold: object, words: dict[str, str]) -> str:
    known = list(words) or list(LETTERS)
    if isinstance(gold, bool) or gold is None:
        raise BadGold("no column `answer`" if gold is None else "the answer is true or false, not an option")
    if isinstance(gold, int):
        if not words:
            raise BadGold(f"the answer {gold} is a position, and the row has no `choices`")
        if not 0 <= gold < len(known):
            raise BadGold(f"the answer {gold} is no position in {len(known)} choices (the first is 0)")
        return known[gold]
    text = str(gold).strip()
    by_words = [letter for letter, option in words.items() if option == normal(text)]
    if len(by_words) == 1:
        return by_words[0]
    letter = text.strip("(). ").upper()
    if letter in known:
        return letter
    raise BadGold(f"the answer {text[:60]!r} is none of the options {', '.join(known[:26])}")
