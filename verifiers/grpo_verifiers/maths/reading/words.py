"""Answers in words: numbers, yes and no, names, and which spellings of them are one.

How this works: tables first; `number_of` reads a number in words, `plain_words` strips a text down to its words, and
`same_words` compares two texts by those.
"""

from __future__ import annotations

import re

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading.vocabulary import PHRASES, names

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = {
    w: 10 * (i + 2)
    for i, w in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])
}
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
    "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16, "seventeenth": 17,
    "eighteenth": 18, "nineteenth": 19, "twentieth": 20,
}  # fmt: skip
_UNITS = {w: i for i, w in enumerate(_SMALL)}
_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
FRACTION_WORDS = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4, "fifth": 5, "fifths": 5,
    "sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7, "eighth": 8, "eighths": 8, "ninth": 9, "ninths": 9, "tenth": 10, "tenths": 10,
}  # fmt: skip
CARDINALS = frozenset([*_UNITS, *_TENS])
NUMBER_WORDS = frozenset([*_UNITS, *_TENS, *_ORDINALS, *_MULTIPLIERS, *FRACTION_WORDS])

SHORT_WORDS = names(
    "or and if not is to per of no yes for all the an in at by on be it dne nan inf one two six ten red odd even none "
    "true false sun mon tue wed thu fri sat jan feb mar apr jun jul aug sep oct nov dec cat dog man men boy yen pen "
    "cup day box egg few any may can non via but now win tie bob tom sam ann amy joe tim jim blue th st nd rd"
)
"""Words of two or three letters that are not products of variables."""

_ARTICLES = frozenset(["a", "an", "the"])
_PHRASES = {
    **PHRASES, "dne": "does not exist", "none": "no solution", "no real solution": "no solution",
    "no real root": "no solution", "no root": "no solution", "not exist": "does not exist",
    "doe not exist": "does not exist", "doesnt exist": "does not exist", "not defined": "undefined",
    "empty set": "no solution", "emptyset": "no solution", "varnothing": "no solution",
    "can not be determined": "cannot be determined", "impossible": "not possible", "infinite": "infinity",
    "all real number": "all real", "set of all real number": "all real", "set of real number": "all real",
    "real number": "all real", "real": "all real", "any real number": "all real", "all real": "all real", "every real number": "all real",
    "infinitely many solution": "infinitely many", "infinite solution": "infinitely many",
    "infinite number of solution": "infinitely many", "convergent": "converge", "divergent": "diverge",
    "right isoscele triangle": "isoscele right triangle", "statement is true": "true", "statement is false": "false",
    "neither even nor odd": "neither", "neither odd nor even": "neither", "claim is true": "true", "claim is false": "false", "it is true": "true", "it is false": "false",
}  # fmt: skip
HEDGES = frozenset(
    ["or", "possibly", "maybe", "perhaps", "either", "otherwise", "if", "unless", "alternatively", "not"]
)
NOT_NOUNS = names(
    "wrong incorrect false impossible correct right true answer gold reference result grade score reward expected plus "
    "minus divided multiplied over point than factorial no none never cannot nor neither except excluding but also "
    "another else given any some every when whenever for where while versus vs because denied rejected is isnt ish "
    "nearly almost upward upwards onward onwards tops"
)
"""Words that do not name what a number counts."""
PLACEHOLDERS = frozenset((
    "answer", "your answer", "your answer here", "final answer", "the answer", "answer here",
    "reference answer", "correct answer", "result",
))  # fmt: skip
_NUMERALS = frozenset("ivx ")
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
_KINDS = frozenset(("function", "number", "integer", "serie", "sequence"))


def number_of(words: list[str]) -> int | None:
    """The whole number these lower-case words name (`twenty`, `one`; `third`), or None."""
    words = [part for word in words for part in word.split("-") if part and part != "and"]
    if not words:
        return None
    if len(words) == 1 and words[0] in _ORDINALS:
        return _ORDINALS[words[0]]
    total = current = 0
    last = 10**12
    for word in words:
        if word in _UNITS or word in _TENS:
            value = _UNITS.get(word, _TENS.get(word, 0))
            # `two three` and `twenty thirty` are two numbers
            if last < 20 or (last < 100 and value >= 10):
                return None
            current += value
            last = value
        elif word == "hundred":
            current = (current or 1) * 100
            last = 10**3
        elif word in _MULTIPLIERS:
            total += (current or 1) * _MULTIPLIERS[word]
            current, last = 0, 10**6
        else:
            return None
    return total + current


def ordinal_of(word: str) -> str:
    """The number that a word counts to, in digits (`third`, `iii`, `three`, `3rd`); the word itself if it is none."""
    if word in _ROMAN:
        return str(_ROMAN.index(word) + 1)
    found = number_of([word])
    return patterns.ORDINAL_DIGIT.sub(r"\1", word) if found is None else str(found)


def plain_words(text: str) -> str:
    """Lower case, punctuation and articles dropped, nouns in the singular, synonyms of fixed phrases united."""
    text = patterns.ORDINAL_DIGIT.sub(r"\1", text.lower().replace("'", ""))
    words = [w for w in patterns.WORDS_AND_NUMBERS.findall(text) if w not in _ARTICLES and w != "and"]
    # `the answer is B`: the words before it carry no meaning
    while words and words[0] in ("answer", "option", "choice", "is", "on"):
        words = words[1:]
    if len(words) > 1 and words[0] == "all":
        words = words[1:]
    singulars = [w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in words]
    phrase = " ".join(singulars)
    if len(words) > 2:
        phrase = patterns.EXISTENCE.sub("", phrase).strip()
        if phrase.startswith(("no ", "infinitely ")) and phrase.endswith(" exist"):
            phrase = phrase.removesuffix(" exist")
    return _PHRASES.get(phrase, phrase)


def _listed(text: str) -> list[str]:
    """The parts of a list of words, sorted: a list may come in any order."""
    return sorted(filter(None, (plain_words(part) for part in patterns.LIST_MARKS.split(text))))


def same_words(gold: str, answer: str) -> bool:
    """Whether two plain texts give the same answer."""
    a, b = plain_words(gold), plain_words(answer)
    if not a or not b:
        return False
    # spaces within words do not count (`grey hound`), but `i v` is no `iv`
    if a == b or (a.replace(" ", "") == b.replace(" ", "") and not set(a) <= _NUMERALS):
        return True
    # `an odd function` for `odd`
    said, _, kind = max(a, b, key=len).rpartition(" ")
    if kind in _KINDS and said == min(a, b, key=len) and " " not in said:
        return True
    if len(parts := _listed(gold)) > 1 and parts == _listed(answer):
        return True
    if a in ("yes", "no", "true", "false"):
        head = patterns.VERDICT_WITH_REASON.match(answer)
        if head and head[1].lower() == a:
            # the reason behind a verdict must not take it back
            contrary = "yes|true" if a in ("no", "false") else "no|not|false|yes|true"
            return not re.search(rf"\b({contrary}|or|but|maybe|unless|if|sometimes)\b", head[2], re.I)
    return False
