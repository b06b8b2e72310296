r"""From a completion to the text of its final answer, in linear time, from the right.

The last box outside the thinking counts. An unterminated or empty last box is no answer: falling back to an older
box would pay for a truncated completion. Boxes joined by nothing but a comma or "and" are one list; joined by "or"
they are alternatives, all of which must be right.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from grpo_verifiers.maths.boxes import COMPARING, FILLER, Box, box_at, compared, outermost, rfind_box, with_formula
from grpo_verifiers.text import without_end
from grpo_verifiers.thinking import after_thinking

_BRACKETED_THINK = re.compile(r"\[/?THINK\]", re.I)
LOOK_BACK = 20_000
"""How far from the end the fallbacks look, in characters."""
_OR = re.compile(
    r"\A[,.;:\-–—(]*(?:or|ou|oder|oppure|或者?|или|または|또는|vs\.?|versus|maybe|possibly|perhaps|alternatively|otherwise|/|\||\\text\{(?:or|ou|oder|o)\}|\\lor|\\vee)"
    r"(?:[,:\-–—]|else|maybe|possibly|perhaps|even|alternatively|otherwise|it'?s|itis|it(?:could|can|may|might)be)*(?:[a-zA-Z](?:_\{?\w\}?)?=)?",
    re.I,
)
_AND = re.compile(
    r"(?:,|;|and|&|,and|;and|et|und|y|和|и|と|\\text\{(?:and|et|und|y)\}|\\text\{,?and\}|\\land),?(?:[a-zA-Z](?:_\{?\w\}?)?=)?",
    re.I,
)
_PART = re.compile(r"[,;.]?(?:\(?([a-h]|i{1,3}|[1-8])\)[:.]?)?\Z")
"""What stands between boxes on lines of their own: nothing, or the label of a part."""
_OR_AT_END = re.compile(r"^[^.\n]*\bor\b[\s$\\(\[]*(?:[a-zA-Z](?:_\{?\w\}?)?\s*=\s*)?$")
_OR_AFTER = re.compile(
    r"\A[\s$)\]\\*,.(]*+\b(?:or|alternatively)\b[\s,]*+(?:(?:maybe|possibly|perhaps|even|else|it could be|it is|is it)\s*+)?"
    r"(\$?\\?\(?\s*+(?:[a-zA-Z](?:_\{?\w\}?)?\s*+=\s*+)?(?:-?[\d.]|\\(?:d?frac|sqrt|pi))(?:[^\n.;]|\.(?=\d)){0,80})",
    re.I,
)
_DENIES = (
    r"\s*(?:[.,;!?\n)]|$|(?:the|my|our|correct|right|it|true|valid|what|possible|acceptable|allowed|actually|really|\d|[$\\])"
    r"|an?\s+(?:answer|solution|valid|correct|possible))"
)
_DENIED_AFTER = re.compile(
    r"\A[\s$)\]\\*,.\"'`]*+(?:(?:is|would be|was|are|seems)\s++(?:definitely |clearly |actually |just |also )?(?:not(?="
    + _DENIES
    + r")|wrong|incorrect|false|n't)"
    r"|\?\s*+(?:no|nope|not)\b|\(?(?:just kidding|jk\b|not really)|or\s++(?:something else|some other|another|not\b|maybe not)"
    r"|(?:isn't|is n't|wouldn't be)(?=" + _DENIES + r")|cannot be|can't be|must be wrong)\b",
    re.I,
)
_RETRACTED = re.compile(
    r"\A[\s$)\]\\*,.!\"'`;:\-–—]*+(?:(?:but|however|though|wait|hmm|no|actually|oops|sorry)\b[,.!…\s]*)*(?:this|that|it|which|the answer|my answer)"
    r"(?:\s+(?:is|was|must be|seems|looks)|'s)\s+(?:\w+ly\s+|just\s+)?(?:wrong|incorrect|false|mistaken|not correct|not right|a mistake|an error)\b",
    re.I,
)
_OR_NEXT = re.compile(r"\A([\s$.,*\\)]*+)or\b", re.I)
_NOT_FINAL = re.compile(r"\b(?:previous|earlier|wrong|incorrect|initial|naive|old|tempting|false|former)\s*$", re.I)
_DENIED_BEFORE = re.compile(
    r"(?:(?:\bnot|n't)\s+(?:think|believe|say|claim|mean)\s+(?:that\s+)?(?:it|this|the answer)(?:'s|\s+is|\s+equals)?"
    r"|\b(?:anything|everything) but|\b(?:other|rather) than|\binstead of|\b(?:is|are|was|be) not|\bisn't|\bnot equal to|\bcannot be|\bnot)[:$*\\(\[{\s]*+$",
    re.I,
)
_COMPARED_BEFORE = re.compile(r"\b(?:more|less|greater|fewer|larger|smaller) than[\s$*\\(]*+\Z")
_SIGNED_BEFORE = re.compile(r"\b(?:minus|negative|between [^.\n]{1,30} and)[\s$*\\(]*+\Z")
_ALTERNATIVE_BEFORE = re.compile(
    r"(?:\A|[\s(])(\$[^$\n]{1,40}\$|-?\d++(?:\.\d++)?)\)?\s{1,3}(?:or|oder|ou)\s{1,3}(?:\$|\\\()?\s?\Z", re.I
)
"""A value before "or" and the box."""
_STATED_AFTER = re.compile(
    r"\b(?:final |correct |right |real |true |actual )?answer\s++(?:is|should be|must be|equals|would be)\b[:\s]*+((?:[$\d\\(-])[^\n]{0,80})",
    re.I,
)
_WITHDRAWN = re.compile(
    r"(?:\b(?:actually|wait|no|correction|sorry|hmm|instead|hold on|oops|scratch that|on second thought)\b[^\n]{0,40})"
    r"\b(?:final |correct |right |real |true )?answer\s++(?:is|should be|must be)\b[:\s]*((?:[$\d\\(-]|not\b)[^\n]{0,80})",
    re.I,
)
_LABEL = re.compile(
    r"(?:\bfinal\s++|\bcorrect\s++|\bthe\s++)?\b(?:answer|correct (?:option|choice))\b\s*+(?:is|was|should be|equals|[:=]|\*\*\s*+[:=]|[:=]\s*+\*\*|\*\*\s*+is)"
    r"\s*+:?\s*+(?:\*\*)?"
    r"|(?:最终|最終)?(?:答案|答え)\s*+(?:是|为|為|は)?\s*+[:：]?|정답\s*+(?:은|:|：)|(?:Ответ|R[ée]ponse(?: finale)?|Respuesta(?: final)?|Antwort|Resposta|Risposta)\s*+[:：]",
    re.I,
)
_SAID = re.compile(
    r"(?:it|there|the(?:\s++[\w-]+){1,14}?)\s++(?:is|are|equals|was)\s*+:?\s*+(?=[-−+]?[\d$]|\\[a-z(\[])", re.I
)
_UNSAID = re.compile(r"\b(?:not|never|wrong|incorrect|false|if|unless|or|other|first|previous)\b", re.I)
_HASHES = re.compile(r"####[ \t]*+([^\s#].*)")
_VALUE = re.compile(r"\A(?:[-+−*$\\({\[.\d]|[A-Za-z]?\s*=)")
_TAG = re.compile(r"<answer>", re.I)
_TAG_END = re.compile(r"</answer>", re.I)
_TAG_OR = re.compile(r"<answer>([^<]*)</answer>[\s,;.]{0,9}\b(?:or|alternatively)\b[\s:,]{0,9}\Z", re.I)
_BARE = re.compile(r"\A\$?\\?\(?\s*+[-+−]?\$?\d[\d.,/\s%\\^{}]*\)?\$?\.?")
_END_TOKENS = re.compile(r"(?:<\|[a-z_]+\|>|</s>|<eos>|<end_of_turn>|<pad>|\[EOS\])++\s*+", re.I)


class Extraction(NamedTuple):
    """`texts`: what must all be right (one, or alternatives). Empty with a reason when there is no answer."""

    texts: tuple[str, ...]
    reason: str = ""
    source: str = "box"
    listed: str = ""
    """What several boxes on lines of their own state together: the answer to a gold that has several parts."""


def extract(response: object, mode: str = "last_box_or_line", mark: str = "") -> Extraction:
    """The final answer of a completion under one of the three modes; what follows `mark` on a line comes before all else."""
    if not isinstance(response, str):
        return Extraction((), "not_text")
    text = response
    if "\x08oxed" in text:
        text = text.replace("\x08oxed", "\\boxed")  # "\boxed" written in a string that was not raw
    if "<" in text or "◁" in text or "&lt;" in text or ("[" in text and _BRACKETED_THINK.search(text)):
        text, is_open, _ = after_thinking(text)
        if is_open:
            return Extraction((), "in_thinking")
    if mark and mark in text and (marked := _marked(text[-LOOK_BACK:], mark)):
        return marked
    if mode != "answer_line":
        found = _last_box(text)
        if found is not None and found.reason == "empty_box" and mode != "boxed":
            # `put it in \\boxed{}. Answer: 5`: what is stated behind it counts, never an older box
            return _line(text[text.rfind("box") :][-LOOK_BACK:]) or found
        if found is not None or mode == "boxed":
            return found or Extraction((), "no_box")
    return _line(text[-LOOK_BACK:]) or Extraction((), "no_line" if mode == "answer_line" else "no_box")


_MARKUP = r"^[\s>*_#-]{0,9}"
_HEAD = re.compile(
    _MARKUP
    + r"(?:(<(?!answer|think)[A-Za-z_]{1,20}>)\s{0,9}|([A-Za-z][A-Za-z ]{0,20}:)[^\S\n*]{0,9}\**[^\S\n]{0,9})\S",
    re.M | re.I,
)


def mark_of(text: str) -> str:
    """The mark that begins the last line that has one: `A:`, `Final answer:`, `<SOLUTION>`; `` where none does."""
    last = None
    for last in _HEAD.finditer(text[-1_000:]):  # noqa: B007 - the last one counts
        pass
    return (last[1] or last[2]) if last is not None else ""


def _marked(text: str, mark: str) -> Extraction | None:
    """The answer behind the last mark that begins a line; behind a tag up to its end."""
    last = None
    before = "" if mark[:1] == "<" else _MARKUP
    for last in re.finditer(rf"{before}{re.escape(mark)}", text, re.M):  # noqa: B007 - the last one counts
        pass
    if last is None:
        return None
    rest = text[last.end() :]
    end = rest.find(f"</{mark[1:]}") if mark[:1] == "<" else rest.find("\n")
    line = rest[: end if end >= 0 else None].strip(" \t\n*_")
    if mark[:1] == "<" and end < 0:
        return Extraction((), "unterminated_mark", "mark")
    found = _last_box(line) if "box" in line else None
    return found or (Extraction((_first_formula(line),), "", "mark") if line else Extraction((), "empty_mark", "mark"))


def _last_box(text: str) -> Extraction | None:
    found = rfind_box(text, len(text))
    if found is None:
        return None
    box = box_at(text, *found)
    if box.content is None:
        return Extraction((), "unterminated_box")
    alone = text.find("box", 0, box.start) < 0
    if not alone:
        box = outermost(text, box)
    content = box.content or ""
    if not content.isalnum() and not FILLER.sub("", content.replace("{", "").replace("}", "")):
        return Extraction((), "empty_box")
    tail = text[box.end : box.end + 300]
    if len(tail) > 3:
        if _DENIED_AFTER.match(tail[:60]) or _RETRACTED.match(tail[:120]):
            return Extraction((), "denied")
        second = _second_opinion(text, box.end, tail)
        if second is not None:
            return Extraction((content, second))
    before = text[max(0, box.start - 48) : box.start].lower()
    content = with_formula(text, box, tail, before)
    if not content:
        return Extraction((), "unread")
    if " or " in before and (other := _ALTERNATIVE_BEFORE.search(text, max(0, box.start - 48), box.start)):
        return Extraction((other[1].strip("$"), content))
    # whether one of the words occurs that a denial or a comparison needs; cheaper than their patterns, and rarely so
    if "not" in before or "n't" in before or " but" in before or "than" in before or "instead" in before:
        if _DENIED_BEFORE.search(before):
            return Extraction((), "denied")
        if _COMPARED_BEFORE.search(before):
            return Extraction((), "unread")
    if ("minus" in before or "negative" in before or "between" in before) and _SIGNED_BEFORE.search(before):
        return Extraction((), "unread")
    if before.rstrip()[-1:] in COMPARING and (sign := compared(text, box)):
        return Extraction((f"{sign} {content}",))
    return Extraction((content,)) if alone else _joined(text, box, content)


def _second_opinion(text: str, end: int, tail: str) -> str | None:
    """Another final answer stated after the box, which must then be right too."""
    match = _OR_AFTER.match(tail)
    if match is not None:
        return _first_formula(match.group(1))
    if text.find("####", end) >= 0 and (hashes := _hashes(text, end, values_only=True)) is not None:
        return hashes
    rest = text[end:]
    if "<answer>" in rest and "</answer>" in rest and (tagged := _tagged(rest)):
        return tagged
    match = _WITHDRAWN.search(tail) or _STATED_AFTER.search(tail)
    return None if match is None else _first_formula(match.group(1))


def _joined(text: str, box: Box, content: str) -> Extraction:
    parts, labels, stated, is_or = [content], [""], 0, False
    start = box.start
    for _ in range(50):
        earlier = rfind_box(text, start)
        if earlier is None or start - earlier[0] > 600:
            break
        previous = box_at(text[:start], *earlier)
        gap = text[previous.end : start]
        if not previous.content or len(gap) > 80:
            break
        bare = FILLER.sub("", gap)
        if (hedged := _OR.fullmatch(bare) is not None or _OR_AT_END.search(gap) is not None) or _AND.fullmatch(bare):
            is_or = is_or or (hedged and not stated)
        elif label := _PART.fullmatch(bare):
            stated = stated or len(parts)  # boxes on lines of their own: one list only if the gold is one
            labels[-1] = label[1] or ""
        else:
            break
        parts.append(previous.content)
        labels.append("")
        start = previous.start
    if len(parts) == 1:
        return Extraction((content,))
    if first := _PART.search(FILLER.sub("", text[max(0, start - 12) : start])):
        labels[-1] = first[1] or ""
    marks = [f"({label}) " for label in labels] if all(labels) else [""] * len(parts)
    listed = (
        ", ".join(mark + part for mark, part in zip(reversed(marks), reversed(parts), strict=True)) if stated else ""
    )
    parts = parts[: stated or None][::-1]
    if is_or or len(set(parts)) == 1:
        return Extraction(tuple(dict.fromkeys(parts)), listed=listed)
    return Extraction((", ".join(parts),), listed=listed)


def _line(text: str) -> Extraction | None:
    tagged = _tagged(text)
    if tagged is not None:
        if not tagged:
            return Extraction((), "empty_tag", "tag")
        # the answer before the last one where the two are joined by "or": a hedge
        last = text.lower().rfind("<answer>")
        found = _TAG_OR.search(text, max(0, last - 400), last)
        other = found[1].strip() if found else None
        return Extraction((tagged,) if other is None else (other, tagged), "", "tag")
    marked = _hashes(text, 0, values_only=True) if "####" in text else None
    if marked is not None:
        return Extraction((marked,), "", "hashes")
    label = None
    for found in _LABEL.finditer(text):
        if not _NOT_FINAL.search(text[max(0, found.start() - 16) : found.start()]):
            label = found
    if label is not None:
        rest = text[label.end() : label.end() + 400].lstrip(" \t*:")
        rest = rest.lstrip("\n") if not rest.split("\n", 1)[0].strip() else rest
        line = rest.split("\n", 1)[0]
        said = _SAID.match(line)
        if said is not None and not _UNSAID.search(said.group()):
            line = line[said.end() :]
        stated = _first_formula(line)
        hedge = _OR_NEXT.match(rest[rest.find(stated) + len(stated) :])
        if stated and hedge is not None and "\n" in hedge[1]:
            return Extraction((), "hedge", "line")
        if stated and _RETRACTED.match(rest[rest.find(stated) + len(stated) :][:120]):
            return Extraction((), "denied", "line")
        if stated:
            return Extraction((stated,), "", "line")
    marked = _hashes(text, 0, values_only=False) if "####" in text else None
    if marked is not None:
        return Extraction((marked,), "", "hashes")
    whole = without_end(text, _END_TOKENS).strip()
    if len(whole) <= 60 and _BARE.fullmatch(whole):
        return Extraction((whole,), "", "line")
    return None


def _hashes(text: str, start: int, values_only: bool) -> str | None:
    """What follows the last `####`; a heading (`#### Check`) is no value."""
    last = None
    for match in _HASHES.finditer(text, start):
        if not values_only or _VALUE.match(match.group(1)):
            last = match
    return _clean_line(last.group(1)) if last is not None else None


def _tagged(text: str) -> str | None:
    last = None
    for last in _TAG.finditer(text):  # noqa: B007 - the last one counts
        pass
    if last is None:
        return None
    end = _TAG_END.search(text, last.end())
    return text[last.end() : end.start()].strip() if end else None


def _clean_line(line: str) -> str:
    return without_end(line, _END_TOKENS).strip().strip("*").strip()


def _first_formula(line: str) -> str:
    """The formula or the words a line states: up to the end of the sentence, without Markdown or dollars."""
    line = _clean_line(line)
    if line.startswith("$"):
        mark = "$$" if line.startswith("$$") else "$"
        end = line.find(mark, len(mark))
        if end > 0 and not re.match(r"\A\s*+(?:or\b|and\b|,)", line[end + len(mark) :], re.I):
            return line[len(mark) : end].strip()
    if line.startswith("\\(") and "\\)" in line:
        return line[2 : line.find("\\)")].strip()
    sentence = re.split(r"(?<=[^.\s])\.(?=\s++[A-Z(]|\s*+$)|(?<!\s)\s++(?:because|since)\b", line, maxsplit=1)[0]
    return sentence.strip().strip("*").strip()
