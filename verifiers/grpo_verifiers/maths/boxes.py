r"""Where the boxes of a completion stand, and what stands beside one in its formula.

How this works: `rfind_box` looks from the right for a macro that is shown, `box_at` takes its content, `outermost` the box around it. A box
is read with its formula (`with_formula`): a sign, digits, a factor, a scale word, a unit or a percent sign belong to the answer; the other
sides of an equation, words and layout do not change it; whatever else stands beside it makes it unread.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading.answers import read_answer
from grpo_verifiers.maths.reading.units import is_known
from grpo_verifiers.text import without_end

_MOST_UNSEEN = 200
_TOUCHING = frozenset("-−0123456789")
COMPARING = frozenset("<>≠qet")
"""Last characters of what a comparison before a box can be spelt with."""
_LAYOUT = "\\)]$*~ \t\n"
_OPENING = frozenset(("", "$", "=", "\\[", "\\("))
_CLOSING = frozenset(("\\]", "\\)", "\\e"))
_SIGNS = frozenset("-−+")
_LONGEST_MEASURE = 200
_MINUS = frozenset("-−")
_UNREAD = "\x01"


class Box(NamedTuple):
    start: int
    end: int
    content: str | None  # None: never closed


def box_at(text: str, start: int, after: int) -> Box:
    """The box whose macro starts at `start` and ends before `after`."""
    i, n = after, len(text)
    while i < n and text[i] in " \t\n*":
        i += 1
    if i >= n:
        return Box(start, n, None)
    if text[i] == "{":
        end = text.find("}", i)
        inside = text[i + 1 : end]
        if end > 0 and "{" not in inside and "\\" not in inside:
            return Box(start, end + 1, inside)
        depth = 0
        for match in patterns.BRACE.finditer(text, i):
            mark = match.group()
            if mark == "{":
                depth += 1
            elif mark == "}":
                depth -= 1
                if depth == 0:
                    return Box(start, match.end(), text[i + 1 : match.start()])
        return Box(start, n, None)
    if i == after and text[i] not in "0123456789-":
        return Box(start, i, "")
    bare = patterns.BARE_BOX.match(text, i)
    return Box(start, bare.end(), bare.group()) if bare else Box(start, i, "")


def rfind_box(text: str, before: int) -> tuple[int, int] | None:
    """Start and end of the last box macro that starts before `before`; gives up behind many that are not shown."""
    for _ in range(_MOST_UNSEEN):
        last = text.rfind("box", 0, before)  # what every name of a box holds
        if last < 0:
            return None
        start = last - 1
        if not text.startswith("\\boxed", start, before):
            start = text.rfind("\\boxed", 0, before)
            for other in ("\\fbox", "\\framebox"):
                start = max(start, text.rfind(other, max(start, 0), before))
            if start < 0:
                return None
        match = patterns.BOX.match(text, start)
        if match is not None and not _is_comment(text, start):
            return start, match.end()
        before = start
    return None


def _is_comment(text: str, at: int) -> bool:
    if text.startswith("%") or text.find("%", max(0, at - 200), at) >= 0:
        line = text.rfind("\n", max(0, at - 200), at) + 1
        if text[line : line + 1] == "%" and line <= at:
            return line > 0 or at < 200
        mark = text.rfind("%", max(line, at - 200), at)
        if mark > line and text[max(line, mark - 40) : mark].rstrip(" \t$.").endswith("}") and text[mark - 1].isspace():
            return True
    if text[at - 1 : at] == "{" and patterns.UNSEEN.search(text, max(0, at - 40), at):
        return True
    if text.find("<", max(0, at - 2000), at) < 0:
        return False
    opened = text.rfind("<!--", max(0, at - 2000), at)
    return opened >= 0 and text.find("-->", opened, at) < 0


def compared(text: str, box: Box) -> str:
    r"""The strict comparison before a box: `x > \boxed{6}` means more than 6. One that includes its bound often names a minimum."""
    before = text[max(0, box.start - 40) : box.start]
    match = patterns.BOX_COMPARED.search(before)
    return "" if match is None or patterns.A_TAG.search(before) else (match["sign"] or match["name"])


def _with_what_goes_on(text: str, box: Box, tail: str, content: str) -> str:
    r"""The answer with what stands round its box and belongs to it: digits, factors, a scale word or a unit.

    `\boxed{5}\pi` is five times pi, `\boxed{12},500` is 12,500, `\boxed{5}` million is no five.
    """
    if not content[-1:].isdigit() and content[-1:] not in "})":
        return content
    if tail and tail[0] not in "$ \n" and (match := patterns.NUMBER_GOES_ON.match(tail)):
        return content + _formula(match[0])
    if tail and tail[0] != "$" and (match := patterns.FACTOR_GOES_ON.match(tail)) and _formula_of(text, box):
        return f"{content} {_formula(match[0])}"
    # most boxes have no word behind them, which is cheaper to see than the patterns
    if tail.lstrip(_LAYOUT)[:1].isalpha():
        if match := patterns.SCALE_BEHIND.match(tail):
            return f"{content} {match[1]}"
        if match := patterns.UNIT_BEHIND.match(tail):
            return f"{content}\\text{{ {match[1]}}}{match[2] or ''}"
        if match := patterns.UNIT_OUTSIDE.match(tail):
            measured = f"{content}\\text{{ {match[1]}}}"
            tree = read_answer(measured).tree if len(content) < _LONGEST_MEASURE else None
            if tree is not None and tree[0] == "unit" and is_known(tree[2]):
                return measured
    if (
        box.start
        and text[box.start - 1] == ":"
        and (match := patterns.NUMBER_BEFORE.search(text, max(0, box.start - 24), box.start))
    ):
        return match[1] + content
    return content


def _formula(text: str) -> str:
    """A formula up to where it ends."""
    found = patterns.FORMULA_ENDS.search(text)
    return (text if found is None else text[: found.start()]).strip()


def _formula_of(text: str, box: Box) -> tuple[str, str] | None:
    """What stands before and behind a box in its formula, or in its row of one; None where it stands in no formula."""
    start = max(text.rfind("\n\n", 0, box.start), box.start - 1_000, 0)
    before, behind = text[start : box.start], text[box.end : box.end + 300]
    dollars = [mark.end() for mark in patterns.DOLLAR.finditer(before)]
    opened = max(before.rfind("\\("), before.rfind("\\["))
    if len(dollars) % 2:
        at = dollars[-1]
    elif opened > max(before.rfind("\\)"), before.rfind("\\]")):
        at = opened + 2
    elif (at := before.rfind("\\begin")) <= before.rfind("\\end"):
        return None
    closed = patterns.CLOSED.search(behind)
    # dollars of money are not round formulas
    if closed is None or patterns.SENTENCE_BEFORE.search(patterns.UPRIGHT.sub("", before[at:])):
        return None
    rows = list(patterns.ROW.finditer(before, at))
    if rows and "box" in rows[-1].group():
        previous = box_at(before, start=rows[-1].start(), after=rows[-1].end())
        at = previous.end
    elif rows:
        at = rows[-1].end()
    return before[at:], behind[: closed.start()]


def _is_read(before: str, behind: str, goes_on: bool) -> bool:
    """Whether all that stands beside a box in its formula is read: sides of an equation, a sign, a unit, words, layout."""
    before, behind = patterns.UPRIGHT.sub(_upright, before), patterns.UPRIGHT.sub(_upright, behind)
    if sum(map(before.count, "([")) + before.count("\\{") > sum(map(before.count, ")]")) + before.count("\\}"):
        return False  # a coordinate, an argument
    before = without_end(before, patterns.BESIDE)
    before = without_end(before[:-1], patterns.BESIDE) if before[-1:] in _SIGNS else before
    if before and (patterns.READ_BEFORE.search(before[-20:]) is None or _UNREAD in before):
        return False
    at = 0
    for pattern in (patterns.BESIDE, patterns.MARK_BEHIND, patterns.BESIDE):
        found = pattern.match(behind, at)
        at = found.end() if found else at
    return goes_on or at == len(behind) or patterns.READ_BEHIND.match(behind, at) is not None


def _upright(match: re.Match[str]) -> str:
    r"""Upright words beside a box say what it is; another value may follow an "or", and `\mathrm{i}` is a factor."""
    return _UNREAD if match[1].strip() in ("i", "e") or patterns.OR_WORD.search(match[1]) else "\0"


def outermost(text: str, box: Box) -> Box:
    r"""`\boxed{x = \boxed{5}}` is its outer box; looked for a few levels up only, so the cost stays linear."""
    for _ in range(4):
        outer = rfind_box(text, box.start)
        if outer is None or box.start - outer[1] > 400:
            return box
        between = text[outer[1] : box.start]
        if between.count("{") <= between.count("}"):
            return box
        enclosing = box_at(text[: box.end + 4000], *outer)
        if enclosing.content is None or enclosing.end < box.end:
            return box
        inner = patterns.FILLER.sub("", between)
        box = Box(enclosing.start, enclosing.end, box.content if inner == "{" else enclosing.content)
    return box


def with_formula(text: str, box: Box, tail: str, before: str) -> str:
    """The content of a box with what belongs to it, empty if more stands beside it than is read; `before` in small letters."""
    content = box.content or ""
    if (tail and tail[0] not in "$.,;") or text[box.start - 1 : box.start] in _TOUCHING:
        if patterns.GOES_ON.match(tail):
            return ""
        if text[box.start - 1 : box.start] in _TOUCHING and text[box.start - 2 : box.start] != "--":
            if patterns.SIGN_BEFORE.search(text, max(0, box.start - 12), box.start) is None:
                return ""
            content = f"-{content}" if content[:1].isalnum() or content[:1] == "\\" else f"-({content})"
        content += "\\%" if tail.startswith(("%", "\\%")) else ""
    whole = _with_what_goes_on(text, box, tail, content)
    start = before.rstrip(" \n&")
    is_alone = start[-1:] == "$" == tail[:1] or (
        # the last side of an equation, or all of a formula
        (start[-1:] in _OPENING or start[-2:] in _OPENING)
        and (not (rest := tail.lstrip(" \n.,")) or rest[0] == "$" or rest[:2] in _CLOSING)
        and "or" not in before
    )
    formula = None if is_alone else _formula_of(text, box)
    if (
        formula is not None
        and text[box.start - 1] not in _SIGNS
        and without_end(formula[0], patterns.BESIDE)[-1:] in _MINUS
    ):
        content, whole = f"-({content})", f"-({content}){whole[len(content) :]}"
    if formula is not None and not _is_read(*formula, goes_on=whole != content):
        measured = content + " " + patterns.BOX_LETTERS.sub(r"\\mathrm{\1\2}", formula[1])
        is_measure = len(content) < _LONGEST_MEASURE and _is_read(formula[0], "", goes_on=True)
        tree = read_answer(measured).tree if is_measure else None
        if tree is None or tree[0] not in ("unit", "pct"):
            return ""
        whole = measured
    if len(tail) > 3 and patterns.PROSE_GOES_ON.match(tail):
        return ""
    return whole
