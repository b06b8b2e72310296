"""One answer text against one gold, by everything that is cheap. What is left open goes to the child (`proving`).

How this works: `match` tries integers and equal strings, then reads the answer and compares it with each accepted gold:
options, labels, capitals, parts, words, and last the two trees. `same` compares trees; it dispatches by their shape,
and its arguments are gold, answer everywhere. Sentences are compared word by word and formula by formula.
"""

from __future__ import annotations

from typing import NamedTuple

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.comparing import lists, parameters
from grpo_verifiers.maths.comparing.equations import same_relations
from grpo_verifiers.maths.comparing.expansion import SETLIKE, expand, factors
from grpo_verifiers.maths.comparing.golds import (
    MathGold,
    has_options,
    option_and_text,
    option_of,
    options_of,
    without_letter,
)
from grpo_verifiers.maths.comparing.quantities import same_bases, same_measures, same_ratios, same_values
from grpo_verifiers.maths.comparing.realsets import same_regions, written_out_set
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.reading.answers import Answer, is_hedge, is_placeholder, read_answer
from grpo_verifiers.maths.reading.forms import Formula, repeated_capitals, sentence, written_capitals
from grpo_verifiers.maths.reading.reader import labels_differ
from grpo_verifiers.maths.reading.tokens import TooBig
from grpo_verifiers.maths.reading.tree import SCALARS, WHOLE, WHOLE_LETTERS, Node, contains, number, symbols
from grpo_verifiers.maths.reading.vocabulary import names
from grpo_verifiers.maths.reading.words import ordinal_of, plain_words, same_words

_COLUMNS = frozenset(("tuple", "matrix"))
_SUMS = frozenset(("+", "*", "neg", "s", "/"))
_GROUPS = frozenset(("all",))
_NO_LETTER = MathGold((), ())
_STARTS = frozenset(map(number, range(4)))

# Do two trees give the same answer? Dispatch by shape; the order of arguments is gold, answer everywhere.


def same(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether `answer` gives the value of `gold`; unsettled scalars are left in `trial.pending`."""
    # drop what a failed comparison left open: it means nothing for the next one
    mark = len(trial.pending)
    if _same(gold, answer, trial):
        return True
    del trial.pending[mark:]
    return False


def _length(node: Node) -> int:
    return len(node[3] if node[0] == "tuple" else node[1] if len(node[1]) > 1 else node[1][0])


def _groups(node: Node) -> list[Node]:
    """Factors of a direct product, powers written out."""
    found: list[Node] = []
    for part in factors(node):
        stem, _, power = str(part[1]).partition("^") if part[0] == "all" else ("", "", "")
        many = power.isdigit() and 0 < int(power) < 20
        found.extend([("all", stem)] * int(power) if many else [part])
    return found


def start_trial(options: MathOptions) -> ComparisonTrial:
    """A fresh comparison."""
    return ComparisonTrial(options, same)


def _same(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    gold, answer = expand(gold), expand(answer)
    # only where the shapes differ: written out, a set builder may be a finite set
    if gold[0] != answer[0]:
        gold, answer = written_out_set(gold), written_out_set(answer)
    g, a = gold[0], answer[0]
    # from special to general: each test assumes that the earlier ones did not apply
    if g == "congruence" or a == "congruence":
        return parameters.same_residues(gold, answer)
    if (g == "builder" or a == "builder") and parameters.same_residues(gold, answer):
        return True
    if g in ("list", "set") and a in ("list", "set") and lists.same_solutions(gold, answer, trial):
        return True
    if (
        "list" in (g, a)
        and len(ours := parameters.left_names(gold)) == len(theirs := parameters.left_names(answer)) == 1
        and ours != theirs
    ):
        return False
    if (
        "list" in (g, a)
        and WHOLE in symbols(gold)
        and WHOLE in symbols(answer)
        and parameters.same_families(gold, answer, trial)
    ):
        return True
    if g == "rel" or a == "rel":
        return same_relations(gold, answer, trial)
    if g == "list" or a == "list":
        return lists.same_lists(gold, answer, trial)
    if g in ("unit", "pct") or a in ("unit", "pct"):
        return same_measures(gold, answer, trial)
    # direct products of groups, Z_2 x Z_3, whose factors have no order
    if "*" in (g, a) and {g, a} <= {"*", "all"} and contains(gold, _GROUPS) and contains(answer, _GROUPS):
        return lists.unordered(_groups(gold), _groups(answer), trial)
    if (g in SCALARS or g == "inf") and (a in SCALARS or a == "inf"):
        mark = len(trial.pending)
        if same_values(gold, answer, trial):
            return True
        del trial.pending[mark:]
        if WHOLE in symbols(gold) and WHOLE in symbols(answer):
            return parameters.same_families(gold, answer, trial)
        return g == a == "+" and parameters.same_antiderivatives(gold, answer, trial)
    if g in SETLIKE or a in SETLIKE:
        return same_regions(gold, answer, trial)
    if g == "set" or a == "set":
        return lists.same_finite_sets(gold, answer, trial)
    if g in _COLUMNS and a in _SUMS and (vector := lists.as_vector(answer, _length(gold))) is not None:
        return _same(gold, vector, trial)
    if a in _COLUMNS and g in _SUMS and (vector := lists.as_vector(gold, _length(answer))) is not None:
        return _same(vector, answer, trial)
    if "matrix" in (g, a) or lists.is_scaled_matrix(gold) or lists.is_scaled_matrix(answer):
        return lists.same_matrices(gold, answer, trial)
    if g == "tuple" and a == "tuple":
        return lists.same_tuples(gold, answer, trial)
    if (g == "cases" and a in SCALARS) or (a == "cases" and g in SCALARS):
        return lists.same_absolute(answer, gold, trial) if g == "cases" else lists.same_absolute(gold, answer, trial)
    if g == "cases" and a == "cases":
        return lists.same_cases(gold, answer, trial)
    if g in ("ratio", "clock") or a in ("ratio", "clock"):
        return same_ratios(gold, answer, trial)
    if g == "base" or a == "base":
        return same_bases(gold, answer)
    # a form without a rule is equal only to itself
    return bool(gold == answer) and g in ("inf", "dots", "neg", "+", "date")


VERDICTS = frozenset(("yes", "no", "true", "false"))
_VERBS = names(
    "converge diverge exist increase decrease vanish intersect coincide oscillate commute terminate repeat converges "
    "diverges exists increases decreases vanishes intersects oscillates terminates repeats does do cannot never"
)
_NEGATIONS = names("not no never nor cannot neither without except unless if does do doesnt isnt arent dont non only")
_HEADINGS = names(
    "quadrant case option choice figure type statement graph group phase stage column row line question box plan "
    "player step class grade part set team room door day number"
)
"""Nouns that add nothing to the number or letter behind them."""


def has_signs(text: str) -> bool:
    """Whether a text in words holds more than words and plain numbers: operators, comparators, brackets, macros."""
    return patterns.SIGN.search(patterns.DRESS.sub(" ", text)) is not None


def same_statement(gold: str, answer: str, trial: ComparisonTrial) -> bool:
    """Whether two texts hold the same words and formulas in the same order; what floats cannot settle is left pending."""
    first, second = sentence(gold), sentence(answer)
    if not first or len(first) != len(second):
        return False
    for g, a in zip(first, second, strict=True):
        if isinstance(g, Formula) and isinstance(a, Formula):
            is_same = g.shown == a.shown or (g.tree is not None and a.tree is not None and trial.same(g.tree, a.tree))
        else:
            is_same = (
                isinstance(g, str)
                and isinstance(a, str)
                and (g == a or plain_words(g) == plain_words(a) or same_words(g, a))
            )
        if not is_same:
            return False
    return True


def is_core(gold: str, answer: str) -> bool:
    """Whether an answer is the predicate of a gold sentence (`converges`), its verdict (`No`), or the item under a
    numbered heading."""
    wanted, found = gold.lower().strip(" ."), plain_words(answer)
    head = patterns.VERDICT_FIRST.match(wanted)
    if head is not None:
        return found == head[1]
    words, said = [word for word in patterns.RUNS.findall(wanted) if word != "only"], found.split()
    if len(words) == 2 and words[0] in _HEADINGS:
        return [ordinal_of(w) for w in patterns.RUNS.findall(answer.lower()) if w not in (words[0], "the", "only")] == [
            ordinal_of(words[1])
        ]
    if not said or not words or words[0] not in ("the", "it", "this", "these", "they") or len(words) > 9:
        return False
    for i in range(1, len(words)):
        # cut behind a verb of being, or before the verb: nothing of the predicate is left out
        is_predicate = words[i - 1] in ("is", "are", "be") or words[i] in _VERBS
        if is_predicate and plain_words(" ".join(words[i:])) == found:
            # the part that is cut away must not be a `not`
            return not _NEGATIONS & set(words[:i])
    return False


def names_subject(answer: str, gold: str) -> bool:
    """Whether an answer is the gold said of a subject of one word: `the limit does not exist` for `does not exist`."""
    match = patterns.SUBJECT.match(answer)
    if match is None or gold.lower().strip(" .") in VERDICTS:
        return False
    verb, _, rest = match["predicate"].lower().partition(" ")
    if verb in ("is", "are"):
        return bool(rest) and plain_words(rest) == plain_words(gold)
    return verb in _VERBS and plain_words(match["predicate"]) == plain_words(gold)


class Match(NamedTuple):
    """`equal` is None while `pending` pairs are unproved."""

    equal: bool | None
    reason: str
    pending: tuple[tuple[Node, Node], ...] = ()


def match(gold: MathGold, text: str, options: MathOptions) -> Match:
    """The cheap tiers."""
    # most golds: neither side has to be read
    if gold.integer is not None:
        plain = patterns.MATCH_INTEGER.fullmatch(text)
        if plain is not None:
            return _EQUAL_INTEGER if int(plain[1]) == gold.integer else _UNEQUAL
    stripped = text.strip()
    # a letter takes the slower path: a text next to it may contradict it
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
        # a comparison that is still open outweighs a no; among several refusals the first reason counts
        if found.equal is None or best is _UNEQUAL:
            best = found
    return best


_EQUAL_INTEGER = Match(True, "equal:rational")
_UNEQUAL = Match(False, "unequal")


def _against(gold: MathGold, wanted: Answer, answer: Answer, options: MathOptions) -> Match:
    if gold.letter:
        named = option_of(answer.text) or option_of(answer.tokens)
        if named or not gold.has_text:
            if named != gold.letter:
                return _UNEQUAL
            # the right letter with another option's value contradicts itself
            _, rest = option_and_text(answer.text) if gold.has_text else ("", "")
            value = read_answer(rest) if rest else None
            if value is None or value.tree is None or wanted.tree is None:
                return Match(True, "equal:option")
            differs = _trees(wanted, value, options).equal is False
            return _UNEQUAL if differs else Match(True, "equal:option")
    if gold.letters and options_of(answer.text) == gold.letters:
        return Match(True, "equal:option")
    elif (
        not gold.letter and answer.text[:2] in ("\\t", "\\m", "(A", "(B", "(C", "(D", "(E") and "(" in answer.text[:12]
    ):
        # `(C) 12` for 12: the letter of a choice that the gold does not have
        option, rest = option_and_text(answer.text)
        if (
            option
            and (rest[0] != "(" or answer.text[0] == "\\")
            and not has_options(wanted.text)
            and not has_options(rest)
        ):
            return _against(gold, wanted, read_answer(rest), options)
    if not gold.letter and not has_options(wanted.text) and (text := without_letter(answer.text)):
        return _against(gold, wanted, read_answer(text), options)
    if not answer.tokens:
        return Match(False, "empty")
    if wanted.label and answer.label and labels_differ(wanted.label, answer.label):
        return Match(False, "unread")
    # where one string of tokens was read as two values, their trees decide, not their text
    if answer.tokens == wanted.tokens and not (
        wanted.tree != answer.tree
        and wanted.tree is not None
        and answer.tree is not None
        and {wanted.tree[0], answer.tree[0]} <= SCALARS
    ):
        return Match(True, "equal:string")
    # capitals alone are a sequence, as one word or parted by commas, which a product would reorder
    if wanted.capitals:
        written = answer.capitals or written_capitals(answer.tree)
        if written == wanted.capitals:
            return Match(True, "equal:string")
        said = answer.words.strip(" .").lower()
        if len(said) > 3 and not answer.capitals and said == wanted.capitals.lower():
            return Match(True, "equal:words")
        return Match(False, "unread" if sorted(written) == sorted(wanted.capitals) else "unequal")
    letters = repeated_capitals(wanted.tree)
    if letters:
        written = answer.capitals or written_capitals(answer.tree)
        return Match(True, "equal:string") if written == letters else _UNEQUAL
    if wanted.parts or answer.parts:
        # part for part; a list that names no parts gives them in its order
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
    if "\\mathrm" in wanted.text or "\\text" in wanted.text:
        formula, other = (patterns.CHEMICAL_DRESS.sub("", text) for text in (wanted.text, answer.text))
        if formula == other and not formula.isalpha() and patterns.CHEMICAL.fullmatch(formula):
            return Match(True, "equal:string")
    if wanted.tree is None:
        return _words(wanted, answer, options)
    if answer.tree is None:
        if answer.words:
            if is_placeholder(answer.words):
                return Match(False, "placeholder")
            return Match(False, "hedge" if is_hedge(answer.words) else "words")
        return Match(False, "too_big" if "too" in answer.fault else "unread")
    return _trees(wanted, answer, options)


def _part_answers(answer: Answer) -> tuple[Answer, ...]:
    if answer.parts or answer.tree is None or answer.tree[0] not in ("list", "tuple"):
        return answer.parts
    items = answer.tree[2] if answer.tree[0] == "list" else answer.tree[3]
    return tuple(Answer(repr(item), repr(item), item) for item in items)


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
                return Match(None, "open", tuple(trial.pending)) if trial.pending else Match(True, "equal:words")
        except (TooBig, RecursionError):
            return Match(False, "too_big")
    if (is_core(wanted.words, said) or names_subject(said, wanted.words)) and not has_signs(answer.text):
        return Match(True, "equal:words")
    return Match(False, "hedge" if answer.words and is_hedge(answer.words) else "unequal")


def _as_product(node: Node) -> Node | None:
    """`1.5mg` as 1.5 m g; None for all else."""
    if node[2] not in ("mg", "mL", "ms"):
        return None
    return ("*", node[1], *(("s", letter) for letter in node[2]))


def _without_bound(node: Node) -> Node | None:
    """`a_n = n^2, n >= 2` without where its index begins, which may be left off; None for all else."""
    if len(node[2]) != 2 or node[2][1][0] != "rel":
        return None
    value: Node = node[2][0]
    _, name, links = node[2][1]
    if name[0] == "s" and links[0][0] == "!=" and value[0] == "/" and name[1] in symbols(value):
        return value  # what a fraction has no value for
    if name[0] != "s" or name[1] not in WHOLE_LETTERS or links[0][0] not in (">=", ">") or links[0][1] not in _STARTS:
        return None
    # in `x = 5k + 2, k >= 0` it is no index but a parameter, and its range part of the answer
    is_index = value[0] != "rel" or name[1] in symbols(value[1]) or repr(value[1]).endswith(f"_{name[1]}')")
    return value if is_index and name[1] in symbols(value) else None


def _trees(wanted: Answer, answer: Answer, options: MathOptions) -> Match:
    # readings of one answer, the likeliest first
    pairs = [(wanted.tree, tree) for tree in parameters.renamed(wanted.tree, answer.tree)]
    if wanted.tree is not None and answer.tree is not None and "basis_" in wanted.tokens + answer.tokens:
        pairs.append((lists.as_vector(wanted.tree, 3), lists.as_vector(answer.tree, 3)))
    # `0,5` may be a list of two or have a comma for its point
    if patterns.DECIMAL_COMMA.fullmatch(answer.text):
        pairs.append((wanted.tree, read_answer(answer.text.replace(",", ".")).tree))
    if wanted.as_list is not None and answer.tree is not None and answer.tree[0] == "list":
        pairs.append((wanted.as_list, answer.tree))
    if answer.as_list is not None and wanted.tree is not None and wanted.tree[0] == "list":
        pairs.append((wanted.tree, answer.as_list))
    if wanted.tree is not None and answer.tree is not None:
        ours, theirs = wanted.tree, answer.tree
        for change, kind in ((_as_product, "unit"), (_without_bound, "list")):
            if ours[0] != theirs[0] and "congruence" not in (ours[0], theirs[0]) and kind in (ours[0], theirs[0]):
                pairs.append((change(ours), theirs) if ours[0] == kind else (ours, change(theirs)))
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
