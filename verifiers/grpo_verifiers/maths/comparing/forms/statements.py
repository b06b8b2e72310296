"""Answers in sentences: the same words and the same formulas, sign for sign."""

from __future__ import annotations

import re

from grpo_verifiers.maths.comparing.scalars import ComparisonTrial
from grpo_verifiers.maths.reading.forms import Formula, Part, sentence
from grpo_verifiers.maths.reading.vocabulary import names
from grpo_verifiers.maths.reading.words import plain_words, same_words

_DRESS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|textrm|emph)\s*\{|\\[ ,;:!]|\\q?quad|[{}$~]")
_SIGN = re.compile(r"[+/<>=|^*_\\%\[\]≤≥]|(?<![A-Za-z])-|-(?![A-Za-z])|[(][^a-zA-Z(]*\d|\d\s*[):!]|\d:\d")
VERDICTS = frozenset(("yes", "no", "true", "false"))
_VERBS = names(
    """
    converge diverge exist increase decrease vanish intersect coincide oscillate commute terminate repeat
    converges diverges exists increases decreases vanishes intersects oscillates terminates repeats
    does do cannot never
    """
)
_NEGATIONS = names(
    "not no never nor cannot neither without except unless if does do doesnt isnt arent dont non only"
)
_HEADINGS = names(
    """
    quadrant case option choice figure type statement graph group phase stage column row line question
    box plan player step class grade part set team
    """
)
"""Nouns that say nothing beside the number or letter behind them."""

_SUBJECT = re.compile(
    r"\A\s*+(?:it|(?:the|this)\s+(?!answer|opposite|converse|other|not|no)[a-z]+)\s+(?P<predicate>[a-z].*)",
    re.I,
)


def has_signs(text: str) -> bool:
    """Whether a text in words holds more than words and plain numbers: operators, comparators, brackets, macros."""
    return _SIGN.search(_DRESS.sub(" ", text)) is not None


def same_statement(gold: str, answer: str, trial: ComparisonTrial) -> bool:
    """Whether two texts hold the same words and formulas in the same order; what floats cannot settle is left pending."""
    first, second = sentence(gold), sentence(answer)
    if not first or len(first) != len(second):
        return False
    return all(_same_part(g, a, trial) for g, a in zip(first, second, strict=True))


def _same_part(gold: Part, answer: Part, trial: ComparisonTrial) -> bool:
    if isinstance(gold, Formula) and isinstance(answer, Formula):
        if gold.shown == answer.shown:
            return True
        return gold.tree is not None and answer.tree is not None and trial.same(gold.tree, answer.tree)
    if isinstance(gold, str) and isinstance(answer, str):
        return gold == answer or plain_words(gold) == plain_words(answer) or same_words(gold, answer)
    return False


def is_core(gold: str, answer: str) -> bool:
    """Whether an answer is what a sentence says of its subject (`converges`), its verdict (`No`) or what a heading numbers."""
    wanted, found = gold.lower().strip(" ."), plain_words(answer)
    head = re.match(r"(yes|no|true|false)\s*[,.;:]\s+\S", wanted)
    if head is not None:
        return found == head[1]
    words, said = re.findall(r"[^\W_]+", wanted), found.split()
    if len(words) == 2 and words[0] in _HEADINGS:
        return re.findall(r"[^\W_]+", answer.lower()) == words[1:]
    if not said or not words or words[0] not in ("the", "it", "this", "these", "they") or len(words) > 9:
        return False
    for i in range(1, len(words)):
        # cut behind a verb of being, or before the verb: nothing of the predicate is left out
        is_predicate = words[i - 1] in ("is", "are", "be") or words[i] in _VERBS
        if is_predicate and plain_words(" ".join(words[i:])) == found:
            # what is cut away must not have been a `not`
            return not _NEGATIONS & set(words[:i])
    return False


def names_subject(answer: str, gold: str) -> bool:
    """Whether an answer is the gold said of a subject of one word: `the limit does not exist` for `does not exist`."""
    match = _SUBJECT.match(answer)
    if match is None or gold.lower().strip(" .") in VERDICTS:
        return False
    verb, _, rest = match["predicate"].lower().partition(" ")
    if verb in ("is", "are"):
        return bool(rest) and plain_words(rest) == plain_words(gold)
    return verb in _VERBS and plain_words(match["predicate"]) == plain_words(gold)
