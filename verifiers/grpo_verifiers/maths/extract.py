r"""From a completion to the text of its final answer, in linear time, from the right.

The last box outside the thinking counts. An unterminated or empty last box is no answer: falling back to an older
box would pay for a truncated completion. Boxes joined by nothing but a comma or "and" are one list; joined by "or"
they are alternatives, all of which must be right.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.boxes import COMPARING, Box, box_at, compared, outermost, rfind_box, with_formula
from grpo_verifiers.maths.reading.answers import read_answer
from grpo_verifiers.text import last_of, without_end
from grpo_verifiers.thinking import after_thinking

LOOK_BACK = 20_000
"""How far from the end the fallbacks look, in characters."""


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
    if "<" in text or "◁" in text or "&lt;" in text or ("[" in text and patterns.BRACKETED_THINK.search(text)):
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


def mark_of(text: str) -> str:
    """The mark that begins the last line that has one: `A:`, `Final answer:`, `<SOLUTION>`; `` where none does."""
    last = last_of(patterns.HEAD.finditer(text[-1_000:]))
    return (last[1] or last[2]) if last is not None else ""


def _marked(text: str, mark: str) -> Extraction | None:
    """The answer behind the last mark that begins a line; behind a tag up to its end."""
    before = "" if mark[:1] == "<" else patterns.MARKUP
    last = last_of(re.finditer(rf"{before}{re.escape(mark)}", text, re.M))
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
    if not content.isalnum() and not patterns.FILLER.sub("", content.replace("{", "").replace("}", "")):
        return Extraction((), "empty_box")
    tail = text[box.end : box.end + 300]
    if stated := _in_json(text[box.end :]) or _in_json(text[: box.start].rstrip("$\\([ \n")):
        return Extraction((content, *stated))
    if len(tail) > 3:
        if patterns.DENIED_AFTER.match(tail[:60]) or patterns.RETRACTED.match(tail[:120]):
            return Extraction((), "denied")
        second = _second_opinion(text, box.end, tail)
        if second is not None:
            return Extraction((content, second))
    before = text[max(0, box.start - 48) : box.start].lower()
    content = with_formula(text, box, tail, before)
    if not content:
        return Extraction((), "unread")
    if " or " in before and (other := patterns.ALTERNATIVE_BEFORE.search(text, max(0, box.start - 48), box.start)):
        return Extraction((other[1].strip("$"), content))
    # whether one of the words occurs that a denial or a comparison needs; cheaper than their patterns, and rarely so
    if "not" in before or "n't" in before or " but" in before or "than" in before or "instead" in before:
        if patterns.DENIED_BEFORE.search(before):
            return Extraction((), "denied")
        if patterns.COMPARED_BEFORE.search(before):
            return Extraction((), "unread")
    if ("minus" in before or "negative" in before or "between" in before) and patterns.SIGNED_BEFORE.search(before):
        return Extraction((), "unread")
    if before.rstrip()[-1:] in COMPARING and (sign := compared(text, box)):
        return Extraction((f"{sign} {content}",))
    return Extraction((content,)) if alone else _joined(text, box, content)


def _second_opinion(text: str, end: int, tail: str) -> str | None:
    """Another final answer stated after the box, which must then be right too."""
    match = patterns.OR_AFTER.match(tail)
    if match is not None:
        return _first_formula(match.group(1))
    if text.find("####", end) >= 0 and (hashes := _hashes(text, end, values_only=True)) is not None:
        return hashes
    rest = text[end:]
    if "<answer>" in rest and "</answer>" in rest and (tagged := _tagged(rest)):
        return tagged
    match = patterns.WITHDRAWN.search(tail) or patterns.STATED_AFTER.search(tail)
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
        bare = patterns.FILLER.sub("", gap)
        if (
            hedged := patterns.OR.fullmatch(bare) is not None or patterns.OR_AT_END.search(gap) is not None
        ) or patterns.AND.fullmatch(bare):
            is_or = is_or or (hedged and not stated)
        elif label := patterns.PART.fullmatch(bare):
            stated = stated or len(parts)  # boxes on lines of their own: one list only if the gold is one
            labels[-1] = label[1] or ""
        else:
            break
        parts.append(previous.content)
        labels.append("")
        start = previous.start
    if len(parts) == 1:
        return Extraction((content,))
    if first := patterns.PART.search(patterns.FILLER.sub("", text[max(0, start - 12) : start])):
        labels[-1] = first[1] or ""
    marks = [f"({label}) " for label in labels] if all(labels) else [""] * len(parts)
    listed = (
        ", ".join(mark + part for mark, part in zip(reversed(marks), reversed(parts), strict=True)) if stated else ""
    )
    parts = parts[: stated or None][::-1]
    listed = listed or (", ".join(parts) if is_or else "")
    if is_or or len(set(parts)) == 1:
        return Extraction(tuple(dict.fromkeys(parts)), listed=listed)
    return Extraction((", ".join(parts),), listed=listed)


def _line(text: str) -> Extraction | None:
    tagged = _tagged(text)
    if in_json := _in_json(text):
        return Extraction((tagged, *in_json) if tagged else in_json, "", "json")
    if tagged is not None:
        if inside := _in_json(tagged):
            return Extraction(inside, "", "tag")
        if not tagged:
            return Extraction((), "empty_tag", "tag")
        # the answer before the last one where the two are joined by "or": a hedge
        last = text.lower().rfind("<answer>")
        found = patterns.TAG_OR.search(text, max(0, last - 400), last)
        other = found[1].strip() if found else None
        return Extraction((tagged,) if other is None else (other, tagged), "", "tag")
    marked = _hashes(text, 0, values_only=True) if "####" in text else None
    if marked is not None:
        return Extraction((marked,), "", "hashes")
    labels = patterns.EXTRACT_LABEL.finditer(text)
    label = last_of(
        one for one in labels if not patterns.NOT_FINAL.search(text[max(0, one.start() - 16) : one.start()])
    )
    if label is not None:
        rest = text[label.end() : label.end() + 400].lstrip(" \t*:")
        rest = rest.lstrip("\n") if not rest.split("\n", 1)[0].strip() else rest
        line = rest.split("\n", 1)[0]
        line = line[:1] + line[1:].split("【", 1)[0]  # the next part of a solution
        said = patterns.EXTRACT_SAID.match(line)
        if said is not None and not patterns.UNSAID.search(said.group()):
            line = line[said.end() :]
        stated = _first_formula(line)
        hedge = patterns.OR_NEXT.match(rest[rest.find(stated) + len(stated) :])
        if stated and hedge is not None and "\n" in hedge[1]:
            return Extraction((), "hedge", "line")
        if stated and patterns.RETRACTED.match(rest[rest.find(stated) + len(stated) :][:120]):
            return Extraction((), "denied", "line")
        if stated:
            return Extraction((stated,), "", "line")
    marked = _hashes(text, 0, values_only=False) if "####" in text else None
    if marked is not None:
        said = patterns.EXTRACT_SAID.match(marked)
        kept = said is None or patterns.UNSAID.search(said.group())
        return Extraction((marked if said is None or kept else marked[said.end() :],), "", "hashes")
    whole = without_end(text, patterns.END_TOKENS).strip()
    last_line = whole[whole.rfind("\n") + 1 :][-400:]
    concluded = patterns.CONCLUDED.findall(last_line) or patterns.BOLD_VALUE.findall(last_line)
    if len(concluded) == 1 and not patterns.UNSAID.search(last_line):
        return Extraction((_first_formula(concluded[0]),), "", "line")
    alone = patterns.LONE_BOLD.fullmatch(last_line.strip())
    if alone and (patterns.STATES_NONE.search(alone[1]) or read_answer(alone[1]).tree is not None):
        return Extraction((alone[1].strip(),), "", "line")
    if len(whole) <= 60 and patterns.BARE.fullmatch(whole):
        return Extraction((whole,), "", "line")
    return None


def _hashes(text: str, start: int, values_only: bool) -> str | None:
    """What follows the last `####`; a heading (`#### Check`) is no value."""
    hashes = patterns.HASHES.finditer(text, start)
    last = last_of(match for match in hashes if not values_only or patterns.VALUE.match(match.group(1)))
    if last is None:
        return None
    line = _clean_line(last.group(1))
    number = patterns.NUMBER_THEN_PHRASE.fullmatch(line)
    return number[1] if number and not patterns.SECOND_VALUE.search(line, number.end(1)) else line


def _in_json(text: str) -> tuple[str, ...]:
    """What the JSON objects that end a text give as its answer: several are a hedge. Empty where they hold more than is read."""
    text = text[-LOOK_BACK:]
    if 'nswer"' not in text:
        return ()
    text = without_end(text, patterns.END_TOKENS).rstrip(" \t\n`~")
    found, at = list[str](), len(text)
    for one in reversed(list(patterns.JSON_OBJECT.finditer(text))):
        if patterns.JSON_GAP.fullmatch(text, one.end(), at) is None:
            break
        found[:0] = patterns.JSON_STATED.findall(one[0])
        at = one.start()
    read = (
        value.strip('"') if value[0] != '"' or patterns.JSON_RAW.search(value) else json.loads(value, strict=False)
        for value in found
    )
    return tuple(dict.fromkeys(text.strip() for text in read if text.strip()))


def _tagged(text: str) -> str | None:
    last = last_of(patterns.TAG.finditer(text))
    if last is None:
        return None
    end = patterns.TAG_END.search(text, last.end())
    return text[last.end() : end.start()].strip() if end else None


def _clean_line(line: str) -> str:
    return without_end(line, patterns.END_TOKENS).strip().strip("*").strip()


def _first_formula(line: str) -> str:
    """The formula or the words a line states: up to the end of the sentence, without Markdown or dollars."""
    line = _clean_line(line)
    if line.startswith("$"):
        mark = "$$" if line.startswith("$$") else "$"
        end = line.find(mark, len(mark))
        if end > 0 and not patterns.JOINED_BEHIND.match(line[end + len(mark) :]):
            return line[len(mark) : end].strip()
    end = line.find("\\)")
    if line.startswith("\\(") and end > 0 and not patterns.JOINED_BEHIND.match(line[end + 2 :]):
        return line[2:end].strip()
    sentence = patterns.SENTENCE_END.split(line, maxsplit=1)[0]
    return sentence.strip().strip("*").strip()
