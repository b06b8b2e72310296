"""`format`: think and answer tags in their order, each once, and as many boxes as asked.

A chat template may open the thinking tag itself, so that the completion starts inside it. `opened: auto` reads that from the end
of the prompt, or from a completion whose first tag closes the first section. Whether the answer is right is for
another verifier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from grpo_verifiers.answers import NO_GOLD, AnswerVerifier, Example
from grpo_verifiers.verdict import Verdict, right, wrong
from grpo_verifiers.verifier import BadOption, Sample

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


@dataclass(frozen=True)
class FormatOptions:
    """Options of `format`."""

    tags: list[str] = field(default_factory=lambda: ["think", "answer"])
    """Sections in their order, each opened and closed once."""
    opened: Literal["auto", "yes", "no"] = "auto"
    """Whether the prompt already opened the first tag."""
    outside: Literal["space", "text"] = "space"
    """What may stand outside the sections: white space only, or any text."""
    least_chars: int = 1
    """Characters, without white space around, that each section must hold."""
    boxes: Literal["any", "one", "none", "some"] = "any"
    r"""How many `\boxed{}` the text after the first section (or all of it, with one tag) must hold."""
    partial: bool = False
    """Give part of the score for the conditions that hold; `false` gives all or nothing."""


class FormatVerifier(AnswerVerifier):
    """Right where all conditions on the form hold."""

    Options: ClassVar[type] = FormatOptions
    options: FormatOptions
    columns: tuple[str, ...] = ()

    def __init__(self, options: FormatOptions) -> None:
        super().__init__(options)
        if not options.tags and options.boxes == "any":
            raise BadOption("tags", "no tags and any number of boxes: nothing would be checked")
        for tag in options.tags:
            if not re.fullmatch(r"[A-Za-z][\w:-]{0,63}", tag):
                raise BadOption("tags", f"`{tag}` is no name of a tag")
        if len({tag.lower() for tag in options.tags}) < len(options.tags):
            raise BadOption("tags", "a tag stands twice in `tags`")
        names = "|".join(re.escape(tag) for tag in options.tags) or "(?!)"
        self._tag = re.compile(rf"<(/?)({names})>")

    def compile(self, row: Mapping[str, Any]) -> tuple[()]:
        """There is no gold."""
        return NO_GOLD

    def judge_one(self, sample: Sample) -> Verdict:
        """Check every condition; the reason is the first that fails."""
        checks = self.conditions(sample.completion, sample.assistant_prefix)
        failed = [reason for reason, holds in checks if not holds]
        if not failed:
            return right(None, "form")
        score = (len(checks) - len(failed)) / len(checks) if self.options.partial else 0.0
        return wrong(None, failed[0], score=score)

    def conditions(self, text: str, assistant_prefix: str = "") -> list[tuple[str, bool]]:
        """Each condition with whether it holds; `assistant_prefix` is what of the turn stands in the prompt."""
        options = self.options
        marks = [_Mark(m[2], bool(m[1]), m.start(), m.end()) for m in self._tag.finditer(text)]
        if options.tags:
            first = options.tags[0]
            is_opened = options.opened == "yes"
            if options.opened == "auto" and marks and marks[0].tag == first:
                is_opened = marks[0].closes  # a tag that the model opens again counts as opened once
            elif options.opened == "auto":
                in_prompt = [m for m in self._tag.finditer(assistant_prefix) if m[2] == first]
                is_opened = bool(in_prompt) and not in_prompt[-1][1]
            if is_opened:
                marks.insert(0, _Mark(first, False, 0, 0))
        found = [(mark.tag, mark.closes) for mark in marks]
        wanted = [(tag, closes) for tag in options.tags for closes in (False, True)]
        out = [
            (f"no_end_of_{tag}" if closes else f"no_{tag}", found.count((tag, closes)) == 1) for tag, closes in wanted
        ]
        in_order = found == wanted
        if options.tags:
            out.append(("order", in_order))
            sections = [text[a.end : b.start].strip() for a, b in zip(marks[::2], marks[1::2], strict=False)]
            out.append(("empty", in_order and all(len(section) >= options.least_chars for section in sections)))
            edges = [0, *(edge for mark in marks for edge in (mark.start, mark.end)), len(text)]
            between = [text[a:b].strip() for a, b in zip(edges[::4], edges[1::4], strict=False)]
            out.append(("outside", options.outside == "text" or (in_order and not any(between))))
        if options.boxes != "any":
            after = text[marks[1].end :] if in_order and len(options.tags) > 1 else text
            n = len(_BOX.findall(after))
            out.append(("boxes", {"one": n == 1, "none": n == 0, "some": n >= 1}[options.boxes]))
        return out

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example("<think>2+2</think>\n<answer>4</answer>", {}, "both sections, in order"),
            Example("2+2</think><answer>4</answer>", {}, "the template opened the thinking"),
            Example("<answer>4</answer><think>2+2</think>", {}, "the wrong way round"),
            Example("<think>a</think><answer>4</answer> and more", {}, "text outside the sections"),
        ]


class _Mark(NamedTuple):
    tag: str
    closes: bool
    start: int
    end: int
