r"""Finds where a completion stops thinking and starts to answer, for every verifier and for the metric `think`.

These verifiers read only the text after the last end of thinking, and nothing if a thinking is never closed: `math`,
`numeric`, `exact`, `set`, `choice`, `equation`, `reasoning_gym`, `json`, `instructions`, `code`, `sql`, `command`,
`metamath`, `coq`, and `regex` where it compares a group. The whole text goes to `format` (it checks the tags), `regex`
that only searches, `python` (the function's author decides) and `reward_model`. `agrees` compares the two
parts.

How this works: `_TAG` finds the tags, those within quotes are dropped, and one pass of `_Scan` over tags and fences
records where the last thinking ended. The time is linear in the text.

Spellings: `<think>`, `<thinking>` and other names, also with attributes or escaped as HTML, `<seed:think>`, `[THINK]`,
`◁think▷`, `<|START_THINKING|>`, `<|begin_of_thought|>`, `<unused94>`, and channels (`<|channel|>final` ends it, any other opens it;
`<|channel>thought` ends with `<channel|>`).
A chat template may have opened the thinking, so an end without a beginning counts. If the prompt is known its end shows
this (`Sample.assistant_prefix`); then a completion that was cut before the end of thinking is no answer either.

A quoted tag does not count: one within quotes or backticks on its line, in a fenced block of the answer, or in a pair
inside a fenced block of the thinking. A fence that the thinking left open does not hide a tag at the start of a line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAMES = r"think|thinking|thought|thoughts|reason|reasoning|reflection|analysis|scratchpad|seed:think"
_TAG = re.compile(
    rf"(?:<|&lt;)\s*+(?P<end>/?)\s*+(?:{_NAMES})(?:\s[^<>&\n]{{0,40}})?(?:>|&gt;)|<\|(?P<end4>/|END_)?(?:START_)?THINK(?:ING)?\|>|[◁](?P<end2>/?)(?:think|thinking)[▷]|\[(?P<end3>/?)THINK\]"
    r"|<\|(?P<word>begin_of_thought|end_of_thought|begin_of_solution)\|>"
    r"|<\|channel\|?>(?P<channel>\w+)(?:<\|message\|>)?|(?P<end5><(?:channel\|>|unused95>))|<unused94>(?:thought\b)?",
    re.IGNORECASE,
)
# a fence may also follow a tag directly; the scan checks that it was a tag
_FENCE = re.compile(r"(?:^|(?<=[>▷\]]))[^\S\n]*(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)
# no quotation starts after a word, a closing bracket or a backslash: don't, f(x)', \"
_QUOTED = re.compile(r"(?<![\w)\]}\\])[rbfuRBFU]{0,2}([\"'`])(?:\\.|(?!\1)[^\\\n])*\1(?!\w)")
_QUOTES = ('"', "'", "`")
_MOST_INDENT = 100
_LONGEST_TAG = 120
_CHANNEL_PARTS = ("<|channel|>", "<|message|>", "<|start|>")
_SPECIAL = re.compile(r"<\|start\|>\s*assistant|<\|[^|>\n]{1,40}\|>")


class AfterThinking(NamedTuple):
    """The text of the answer, whether the last thinking is still open, and whether a closed thinking was not empty."""

    text: str
    is_open: bool
    has_thought: bool = False


class _Tag(NamedTuple):
    start: int
    end: int
    ends: bool


class _Fence(NamedTuple):
    start: int
    end: int
    marks: str
    info: str


def after_thinking(text: str) -> AfterThinking:
    """The text after the last end of thinking, or the whole text if there is none."""
    marks = [_Tag(m.start(), m.end(), _is_end(m)) for m in _TAG.finditer(text)]
    if not marks:
        return AfterThinking(text, False)
    # without tags within quotes or backticks on their line; each line is read once
    tags, line_end, spans = list[_Tag](), -1, list[tuple[int, int]]()
    for tag in marks:
        if tag.start > line_end:
            line_start = text.rfind("\n", 0, tag.start) + 1
            line_end = text.find("\n", tag.end)
            line_end = len(text) if line_end < 0 else line_end
            spans = []
            if any(text.find(q, line_start, tag.start) >= 0 for q in _QUOTES):
                spans = [m.span() for m in _QUOTED.finditer(text, line_start, line_end)]
            spans.reverse()
        while spans and spans[-1][1] <= tag.start:
            spans.pop()
        if not spans or spans[-1][0] >= tag.start or tag.end >= spans[-1][1]:
            tags.append(tag)
    fences = []
    if "```" in text or "~~~" in text:
        fences = [_Fence(m.start(), m.end(), m["marks"], m["info"].strip()) for m in _FENCE.finditer(text)]
        fences = [f for f in fences if "`" not in f.info]
    scan = _Scan(text)
    scan.read(tags, fences)
    if scan.fence is not None and not scan.in_answer and scan.hid_a_tag:
        # the fence was never closed, so the text after it need not be quoted
        unclosed = scan.fence
        scan = _Scan(text)
        scan.read(tags, [f for f in fences if f.start < unclosed.start])
    return AfterThinking(text[scan.answer_at :], scan.is_open, scan.has_thought)


def has_thought(text: str) -> bool:
    """Whether a completion holds a closed, non-empty thinking; its beginning may stand in the prompt."""
    return after_thinking(text).has_thought


def thought(text: str) -> str:
    """The thinking itself, a line for each mark in it; "" where there is none, or where it is not closed."""
    found = after_thinking(text)
    if found.is_open or not found.has_thought:
        return ""
    return _TAG.sub("\n", text[: len(text) - len(found.text)])


def opening_at_end(prompt: str) -> str:
    """The opening of a thinking at the end of a prompt (written by the template), with white space after it; else
    ""."""
    said = prompt.rstrip()
    near = max(0, len(said) - _LONGEST_TAG)
    last = next((m for m in _TAG.finditer(said, near) if m.end() == len(said)), None)
    return "" if last is None or _is_end(last) else prompt[last.start() :]


def is_tag(token: str) -> bool:
    """Whether a token of a vocabulary is a thinking tag, or a part of one."""
    return token in _CHANNEL_PARTS or _TAG.fullmatch(token) is not None


def answer_text(completion: str) -> str:
    """The text after the thinking with plain line ends, for verifiers of programs; "" where the thinking was never closed."""
    text = completion.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    found = after_thinking(text)
    return "" if found.is_open else found.text


def _is_end(match: re.Match[str]) -> bool:
    word, channel = match["word"], match["channel"]
    if channel is not None:
        return channel.lower() == "final"
    if word is not None:
        return word.lower() != "begin_of_thought"
    return bool(match["end"] or match["end2"] or match["end3"] or match["end4"] or match["end5"])


class _Scan:
    """One pass over tags and fences. Before the first tag it is unknown whether the template opened a thinking."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.is_open = self.has_thought = self.in_answer = self.hid_a_tag = False
        self.answer_at = self._thought_at = 0
        self.fence: _Fence | None = None
        self._pairs = 0  # number of openings quoted by the fence, minus ends
        self._hidden: _Tag | None = None  # an end inside a fence of this thinking, used if no other is found
        self._tag_end = -1

    def read(self, tags: list[_Tag], fences: list[_Fence]) -> None:
        """Take tags and fences in the order of the text."""
        at = 0
        for tag in tags:
            while at < len(fences) and fences[at].start < tag.start:
                self._take_fence(fences[at])
                at += 1
            is_quoted = self.fence is not None
            if is_quoted and not self.in_answer:
                if not tag.ends:
                    self._pairs += 1
                elif self._pairs:
                    self._pairs -= 1
                else:
                    near = max(0, tag.start - _MOST_INDENT)
                    line = self._text[self._text.rfind("\n", near, tag.start) + 1 or near : tag.start]
                    # a fence that the thinking left open does not hide a tag that starts a line
                    is_quoted = bool(line.strip(" \t`~"))
                    self._hidden = tag if is_quoted else self._hidden
            if is_quoted:
                self.hid_a_tag = True
            elif tag.ends:
                self._end(tag)
            else:
                if not self.is_open:
                    self._thought_at = tag.end
                self.is_open, self.in_answer = True, False
                self.fence, self._hidden, self._tag_end = None, None, tag.end
        for fence in fences[at:]:
            self._take_fence(fence)
        if self.is_open and self._hidden is not None:
            self._end(self._hidden)

    def _take_fence(self, fence: _Fence) -> None:
        starts_line = fence.start == 0 or self._text[fence.start - 1] == "\n"
        if not starts_line and fence.start != self._tag_end:
            return
        if self.fence is None:
            self.fence, self._pairs, self.hid_a_tag = fence, 0, False
        elif fence.marks.startswith(self.fence.marks) and not fence.info:
            self.fence = None

    def _end(self, tag: _Tag) -> None:
        said = self._text[self._thought_at : tag.start]
        self.has_thought = self.has_thought or bool(_SPECIAL.sub("", said).strip())
        self.answer_at = self._thought_at = tag.end
        self.is_open, self.in_answer = False, True
        self.fence, self._hidden, self._tag_end = None, None, tag.end
