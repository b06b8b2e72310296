"""One answer text against one gold, by everything that is cheap. What is left open goes to the child (`worker`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from grpo_verifiers.maths.comparing.compare import same, start_trial
from grpo_verifiers.maths.comparing.forms.parameters import renamed
from grpo_verifiers.maths.comparing.forms.statements import (
    VERDICTS,
    has_signs,
    is_core,
    names_subject,
    same_statement,
)
from grpo_verifiers.maths.comparing.forms.vectors import as_vector
from grpo_verifiers.maths.comparing.golds import MathGold
from grpo_verifiers.maths.comparing.option_letters import option_and_text, option_of, options_of
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.reading.answers import Answer, is_hedge, is_placeholder, read_answer
from grpo_verifiers.maths.reading.forms import repeated_capitals, written_capitals
from grpo_verifiers.maths.reading.reader import labels_differ
from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import SCALARS, Node
from grpo_verifiers.maths.reading.words import same_words

_INTEGER = re.compile(r"\A\s*+\$?\s*+([-+]?\d{1,15})\s*+\.?\s*+\$?\s*+")


_DECIMAL_COMMA = re.compile(r"-?0,\d+")


class Match(NamedTuple):
    """`equal` is None while `pending` pairs are unproved."""

    equal: bool | None
    reason: str
    pending: tuple[tuple[Node, Node], ...] = ()


def match(gold: MathGold, text: str, options: MathOptions) -> Match:
    """The cheap tiers."""
    # most golds: neither side has to be read
    if gold.integer is not None:
        plain = _INTEGER.fullmatch(text)
        if plain is not None:
            return _EQUAL_INTEGER if int(plain[1]) == gold.integer else _UNEQUAL
    stripped = text.strip()
    # a letter goes the longer way: it may stand beside a text that contradicts it
    if stripped in gold.texts and not gold.letter:
        return Match(True, "equal:string")
    if len(text) > options.max_chars:
        return Match(False, "too_long")
    try:
        answer = read_answer(text)
    except TooBig:
        return Match(False, "too_big")
    best = _UNEQUAL
    for wanted in gold.answers:
        found = _against(gold, wanted, answer, options)
        if found.equal:
            return found
        # what may still be proved outweighs a no; of several refusals the first one's reason is told
        if found.equal is None or best is _UNEQUAL:
            best = found
    return best


_EQUAL_INTEGER = Match(True, "equal:rational")
_UNEQUAL = Match(False, "unequal")


def _against(gold: MathGold, wanted: Answer, answer: Answer, options: MathOptions) -> Match:
    if gold.letter:
        named = option_of(answer.text) or option_of(answer.tokens)
        if named or not gold.has_text:
            # the right letter beside another option's value contradicts itself
            is_right = named == gold.letter and not (gold.has_text and _other_text(wanted, answer, options))
            return Match(True, "equal:option") if is_right else _UNEQUAL
    if gold.letters and options_of(answer.text) == gold.letters:
        return Match(True, "equal:option")
    if not answer.tokens:
        return Match(False, "empty")
    if wanted.label and answer.label and labels_differ(wanted.label, answer.label):
        return Match(False, "unread")
    if answer.tokens == wanted.tokens and not _read_apart(wanted.tree, answer.tree):
        return Match(True, "equal:string")
    # capitals alone are a sequence, which a product would reorder
    if wanted.capitals:
        return _capitals(wanted, answer)
    letters = repeated_capitals(wanted.tree)
    if letters:
        written = answer.capitals or written_capitals(answer.tree)
        return Match(True, "equal:string") if written == letters else _UNEQUAL
    if wanted.parts or answer.parts:
        return _parts(wanted, answer, options)
    if wanted.tree is None:
        return _words(wanted, answer, options)
    if answer.tree is None:
        if answer.words:
            if is_placeholder(answer.words):
                return Match(False, "placeholder")
            return Match(False, "hedge" if is_hedge(answer.words) else "words")
        return Match(False, "too_big" if "too" in answer.fault else "unread")
    return _trees(wanted, answer, options)


def _read_apart(gold: Node | None, answer: Node | None) -> bool:
    """Whether one string of tokens was read as two values: their trees decide then, not their text."""
    return gold != answer and gold is not None and answer is not None and {gold[0], answer[0]} <= SCALARS


_NO_LETTER = MathGold((), ())


def _parts(wanted: Answer, answer: Answer, options: MathOptions) -> Match:
    """Part for part; a list that names no parts gives them in its order."""
    first, second = _part_answers(wanted), _part_answers(answer)
    if len(first) != len(second):
        return Match(False, "unread" if not first or not second else "unequal")
    found = [_against(_NO_LETTER, w, a, options) for w, a in zip(first, second, strict=True)]
    # one wrong part decides; open ones wait for their proofs together
    apart = next((m for m in found if m.equal is False), None)
    if apart is not None:
        return apart
    pending = tuple(pair for m in found for pair in m.pending)
    return Match(None, "open", pending) if pending else found[-1]


def _part_answers(answer: Answer) -> tuple[Answer, ...]:
    if answer.parts or answer.tree is None or answer.tree[0] not in ("list", "tuple"):
        return answer.parts
    items = answer.tree[2] if answer.tree[0] == "list" else answer.tree[3]
    return tuple(Answer(repr(item), repr(item), item) for item in items)


def _capitals(wanted: Answer, answer: Answer) -> Match:
    """A sequence of capitals: as one word or parted by commas, in its order."""
    written = answer.capitals or written_capitals(answer.tree)
    if written == wanted.capitals:
        return Match(True, "equal:string")
    said = answer.words.strip(" .").lower()
    if len(said) > 3 and not answer.capitals and said == wanted.capitals.lower():
        return Match(True, "equal:words")
    return Match(False, "unread" if sorted(written) == sorted(wanted.capitals) else "unequal")


def _words(wanted: Answer, answer: Answer, options: MathOptions) -> Match:
    """The gold is words, or could not be read: the same words and the same formulas."""
    if not wanted.words:
        return Match(False, "unread")
    said = answer.words or (answer.tokens if answer.tokens.isalpha() else answer.text)
    is_verdict = wanted.words.lower() in VERDICTS
    if is_verdict or not (has_signs(wanted.text) or has_signs(answer.text)):
        if same_words(wanted.words, said):
            return Match(True, "equal:words")
    else:
        trial = start_trial(options)
        try:
            if same_statement(wanted.text, answer.text, trial):
                return (
                    Match(None, "open", tuple(trial.pending)) if trial.pending else Match(True, "equal:words")
                )
        except (TooBig, RecursionError):
            return Match(False, "too_big")
    if (is_core(wanted.words, said) or names_subject(said, wanted.words)) and not has_signs(answer.text):
        return Match(True, "equal:words")
    return Match(False, "hedge" if answer.words and is_hedge(answer.words) else "unequal")


def _other_text(wanted: Answer, answer: Answer, options: MathOptions) -> bool:
    """Whether an answer gives the right letter with a value that is not the gold's."""
    _, rest = option_and_text(answer.text)
    read = read_answer(rest) if rest else None
    return (
        read is not None
        and read.tree is not None
        and wanted.tree is not None
        and _trees(wanted, read, options).equal is False
    )


def _trees(wanted: Answer, answer: Answer, options: MathOptions) -> Match:
    # readings of one answer, the likeliest first
    pairs = [(wanted.tree, tree) for tree in renamed(wanted.tree, answer.tree)]
    if wanted.tree is not None and answer.tree is not None and "basis_" in wanted.tokens + answer.tokens:
        pairs.append((as_vector(wanted.tree, 3), as_vector(answer.tree, 3)))
    # `0,5` may be a list of two or have a comma for its point
    if _DECIMAL_COMMA.fullmatch(answer.text):
        pairs.append((wanted.tree, read_answer(answer.text.replace(",", ".")).tree))
    if wanted.as_list is not None and answer.tree is not None and answer.tree[0] == "list":
        pairs.append((wanted.as_list, answer.tree))
    if answer.as_list is not None and wanted.tree is not None and wanted.tree[0] == "list":
        pairs.append((wanted.tree, answer.as_list))
    for g, a in pairs:
        if g is None or a is None:
            continue
        trial = start_trial(options)
        try:
            if same(g, a, trial):
                if trial.pending:
                    return Match(None, "open", tuple(trial.pending))
                return Match(True, trial.how)
        except (TooBig, RecursionError):
            return Match(False, "too_big")
    if answer.tree is not None and wanted.tree is not None:
        # several answers to a question that has one, whichever of them is right
        if answer.tree[0] == "list" and wanted.tree[0] not in ("list", "set", "tuple", "rel"):
            return Match(False, "hedge")
        if (answer.tree[0] == "cases") != (wanted.tree[0] == "cases"):
            return Match(False, "unread")  # an absolute value and its cases may be one function
        if answer.tree[0] != wanted.tree[0] and {answer.tree[0], wanted.tree[0]} & {
            "tuple",
            "list",
            "set",
            "matrix",
            "rel",
            "cases",
        }:
            return Match(False, "kind")
    return _UNEQUAL
